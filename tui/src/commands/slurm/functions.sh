# --- the same for every script that robustctl slurm writes -------------------------------------
set -u
say() { printf '%(%F %T)T %s\n' -1 "$*"; }

# address HOST: of a machine, as Slurm reaches it. What Debian calls a machine on itself (127.0.1.1) no other reaches.
address() {
  local at
  at=$(scontrol show node "$1" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
  at=$(getent ahostsv4 "${at:-$1}" | awk 'NR == 1 { print $1 }')
  case $at in 127.0.1.*) at=$(hostname -I | awk '{ print $1 }') ;; esac
  [ -n "$at" ] && printf '%s\n' "$at"
}

# No step is bound to one core of those that the job has; a cluster that binds none does not take the option.
bind=(--cpu-bind=none)
scontrol show config | grep -q '^TaskPlugin *= *task/none$' && bind=()

# on HOST WORDS..: a step on one machine. One over several is killed as a whole with the first machine that is lost.
on() {
  local host=$1
  shift
  srun --quiet --no-kill --overlap --kill-on-bad-exit=0 --nodes=1 --ntasks=1 --nodelist="$host" --input=none \
    "${bind[@]}" "$@"
}

# daemon HOST STATE WORDS..: robustd until its end. Its process id lies beside the state directory. It writes its log itself:
# what goes through srun ends with that, and then a daemon that writes.
daemon() {
  local host=$1 state=$2
  shift 2
  on "$host" bash -c '
    umask 077
    mkdir -p "$(dirname "$0")" && echo $$ > "$0.pid" && log=$1 && shift && exec "$@" >> "$log" 2>&1' \
    "$state" "$dir/$(basename "$state").log" "$robustd" --state-dir "$state" "$@"
}

# terminate HOST STATE: SIGTERM to that robustd alone. A signal to its step would reach the roles as well.
terminate() { timeout 30 srun --quiet --overlap --nodes=1 --ntasks=1 --nodelist="$1" --input=none bash -c 'kill -TERM "$(cat "$0.pid")"' "$2"; }

# lost HOST: whether Slurm knows that the machine is not there.
lost() {
  case $(sinfo --noheader --nodes="$1" --format=%T) in down* | fail* | unknown* | *\*) return 0 ;; *) return 1 ;; esac
}

# over HOST CODE: whether a robustd that ended so is not started again, as its end is one in order, or a new start would
# end in the same way. Others (a signal, a disk, a port) may pass.
tries=0
over() {
  case $2 in 0 | 1 | 2 | 3 | 7 | 130 | 143) return 0 ;; esac
  [ ! -e "$stopping" ] && ! lost "$1" || return 0
  tries=$((tries + 1))
  [ "$tries" -le 5 ] || return 0
  say "robustd on $1 ended with code $2; it is started again"
  sleep 2
  return 1
}

# node HOST NAME POOLS: a node that joins whichever controller leads, until its end.
node() {
  local host=$1 code
  local words=(--join "$addresses" --name "$2" --token-file "$dir/token" --drain "$drain")
  [ -z "$3" ] || words+=(--pools "$3")
  while :; do
    daemon "$host" "$local/node-$2" "${words[@]}"
    code=$?
    over "$host" "$code" && break
  done
  say "node $2 on $host has ended ($code)"
  return "$code"
}

# await PID: waits for a part of this script, however often a signal comes in between; its exit code.
await() {
  local code again
  while :; do
    wait "$1"
    code=$?
    kill -0 "$1" 2>/dev/null || break
  done
  # The signal may have come with the end.
  wait "$1"
  again=$?
  [ "$again" = 127 ] || code=$again
  return "$code"
}
