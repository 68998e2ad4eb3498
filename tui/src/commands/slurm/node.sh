# --- one node more -----------------------------------------------------------------------------
name="slurm-$SLURM_JOB_ID"
stopping="$dir/stopping.$SLURM_JOB_ID"
host=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
addresses=$(awk '{ print $2 }' "$dir/controllers" | paste -sd,)
[ -n "$addresses" ] || { say "$dir/controllers names no controller: the job has not begun"; exit 7; }

stop() {
  say "asked to end"
  : > "$stopping"
  terminate "$host" "$local/node-$name" &
}
trap stop TERM
node "$host" "$name" "$pools" &
await $!
code=$?
rm -f "$stopping"
exit "$code"
