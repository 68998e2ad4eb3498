# --- the job -----------------------------------------------------------------------------------
stopping="$dir/stopping.$SLURM_JOB_ID"
rm -rf "$stopping" "$dir"/again.* "$dir"/ended.*
# Another one than was submitted first, where this was submitted again.
echo "$SLURM_JOB_ID" > "$dir/number.new" && mv "$dir/number.new" "$dir/number"
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
[ "${#hosts[@]}" -ge "${#names[@]}" ] || { say "Slurm gave ${#hosts[@]} machines, and the job has ${#names[@]} nodes"; exit 2; }
[ -n "$port" ] || port=$((10000 + SLURM_JOB_ID % 1600 * 3))

# Where it ran before, on other machines perhaps.
before=
[ ! -e "$dir/began" ] || before=yes
touch "$dir/began"
if [ -e "$dir/grown" ]; then
  # They wait for a controller where there is none any more.
  while read -r id _; do scancel --quiet "$id" 2>/dev/null; done < "$dir/grown"
  rm -f "$dir/grown"
fi
for ((i = 0; i < controllers; i++)); do
  at=$(address "${hosts[i]}") || { say "${hosts[i]} has no address: its NodeAddr in Slurm and its name are not known here"; exit 5; }
  echo "${hosts[i]} $at:$((port + i)) $local/control-$i"
done > "$dir/controllers.new"
mv "$dir/controllers.new" "$dir/controllers"
for i in "${!names[@]}"; do echo "${names[i]} ${hosts[i]}"; done > "$dir/nodes.new"
mv "$dir/nodes.new" "$dir/nodes"
addresses=$(awk '{ print $2 }' "$dir/controllers" | paste -sd,)

# newest HOST STATE: whatever lies there is of the controller's last beginning from here on. Where it began on another machine
# since, the log went on without that state directory, and robustd would refuse it: it is set aside by the number of its beginning, and
# the log is read. Nothing is ever removed: where the log is lost, one of them may be all that there is. A folder that all machines
# have is always of the last beginning.
newest() {
  local last=0
  [ ! -s "$dir/beginning" ] || last=$(<"$dir/beginning")
  on "$1" bash -c '
    mkdir -p "$(dirname "$0")" || exit 1
    known=$(cat "$0.beginning" 2>/dev/null)
    if [ -d "$0/db" ] && [ "${known:-$1}" -lt "$1" ]; then
      mv -T "$0" "$0.before.$known" || exit 1
    fi
    echo "$(($1 + 1))" > "$0.beginning"' "$2" "$last" || return 1
  echo "$((last + 1))" > "$dir/beginning.new" && mv "$dir/beginning.new" "$dir/beginning"
}

# control INDEX: a controller, until its end.
control() {
  local i=$1 host state at code words restore
  read -r host at state < <(sed -n "$((i + 1))p" "$dir/controllers")
  # A candidate brings its state directory to where the log is by itself, from however long ago that is.
  if [ -n "$remote_log" ] && [ -z "$candidates" ]; then
    newest "$host" "$state" || say "whether the state directory on $host is the newest is not known"
  fi
  words=(--job "$job" --listen-nodes "$at" --token-file "$dir/token" "${options[@]}")
  [ -z "$candidates" ] || words+=(--candidate "c$i")
  while :; do
    restore=()
    if [ -n "$before" ] && [ -n "$remote_log" ] && [ -z "$candidates" ] \
      && on "$host" bash -c '[ ! -d "$0/db" ] || [ -e "$0/restoring" ]' "$state" 2>/dev/null; then
      restore=(--restore-from "$remote_log")
    fi
    daemon "$host" "$state" "${words[@]}" "${restore[@]}"
    code=$?
    if [ "$code" = 6 ] && [ "${#restore[@]}" -gt 0 ]; then
      say "there is no log to go on from; robustd looks for one itself and begins the job if that is so"
      before=
      continue
    fi
    over "$host" "$code" && break
  done
  say "the controller on $host has ended ($code)"
  return "$code"
}

# guard INDEX: while this script runs it does nothing. The script is lost with the first machine, and Slurm lets the rest of
# the job be, one machine smaller. Where all machines of controllers are lost, the job is submitted again; where some are left,
# the Slurm job ends with the last of their controllers. Where none of those says that the job is over, it is submitted again, too.
guard() {
  local control=
  [ -z "$candidates" ] || [ "$1" -ge "$controllers" ] || control="$local/control-$1"
  on "${hosts[$1]}" bash -c '
    dir=$1 control=$2
    shift 2
    exec >> "$dir/guard.log" 2>&1
    lost() { case $(sinfo --noheader --nodes="$1" --format=%T) in down* | fail*) return 0 ;; *) return 1 ;; esac; }
    all_lost() { local host; for host; do lost "$host" || return 1; done; }
    all_over() { local host; for host; do [ -e "$dir/ended.$SLURM_JOB_ID.$host" ] || lost "$host" || return 1; done; }
    while sleep 15; do
      lost "$1" || continue
      if all_lost "$@"; then
        # One of those who see it.
        mkdir "$dir/again.$SLURM_JOB_ID" 2>/dev/null || exit 0
        echo "lost: $*, and every controller with that: the job is submitted again"
        sbatch "$dir/job.sh"
      elif [ -n "$control" ]; then
        kill -0 "$(cat "$control.pid")" 2>/dev/null && continue
        how=broken
        tail -n 400 "$dir/$(basename "$control").log" 2>/dev/null \
          | grep -Eq "the job is over: |^job .* (completed|failed|stopped) after [0-9]+ steps in " && how=over
        echo "$how" > "$dir/ended.$SLURM_JOB_ID.$SLURMD_NODENAME"
        all_over "$@" || continue
        sleep 20
        if ! grep -qsx over "$dir/ended.$SLURM_JOB_ID".*; then
          mkdir "$dir/again.$SLURM_JOB_ID" 2>/dev/null || exit 0
          echo "no controller is left of $*, and none says that the job is over: it is submitted again"
          sbatch "$dir/job.sh"
        fi
      else
        continue
      fi
      [ ! -e "$dir/grown" ] || while read -r id _; do scancel --quiet "$id"; done < "$dir/grown"
      exec scancel "$SLURM_JOB_ID"
    done' guard "$dir" "$control" "${hosts[@]:0:$controllers}"
}

stop() {
  say "asked to end"
  : > "$stopping"
  local i host state
  while read -r host _ state; do terminate "$host" "$state" & done < "$dir/controllers"
}
trap stop TERM

leads=() joined=()
for ((i = 0; i < controllers; i++)); do
  control "$i" &
  leads+=($!)
done
for i in "${!names[@]}"; do
  # Without an ha table the first machine's slots are the controller's own.
  [ "$i" = 0 ] && [ -z "$candidates" ] && continue
  node "${hosts[i]}" "${names[i]}" "${pools[i]}" &
  joined[i]=$!
done

# One more than may be lost at once: who sees that all controllers are.
for ((i = 1; i <= (controllers > 2 ? controllers : 2) && i < ${#hosts[@]}; i++)); do guard "$i" & done

worst=0
for i in "${!leads[@]}"; do
  await "${leads[i]}"
  code=$?
  # What a step of a lost machine ends with says nothing of the job.
  [ "$code" -le "$worst" ] || lost "${hosts[i]}" || worst=$code
done

# Nodes end with the job; those that wait for a controller to come back are told that none does.
living() {
  local i
  for i in "${!joined[@]}"; do kill -0 "${joined[i]}" 2>/dev/null && ! lost "${hosts[i]}" && echo "$i"; done
}
for ((t = 0; t < 10; t++)); do
  [ ! -e "$stopping" ] && [ -n "$(living)" ] || break
  sleep 1
done
: > "$stopping"
told=()
for i in $(living); do
  terminate "${hosts[i]}" "$local/node-${names[i]}" &
  told+=($!)
done
[ "${#told[@]}" = 0 ] || wait "${told[@]}"
if [ -e "$dir/grown" ]; then while read -r id _; do scancel --quiet "$id" 2>/dev/null; done < "$dir/grown"; fi
for ((t = 0; t < 20; t++)); do
  [ -n "$(living)" ] || break
  sleep 1
done
rm -f "$stopping" "$dir/grown"
say "the job has ended ($worst)"
exit "$worst"
