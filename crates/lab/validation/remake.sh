#!/bin/sh
# Makes the ns-2 reference tables again: about 20 minutes on one core. Needs Debian's ns2.
#
#   crates/lab/validation/remake.sh [DIRECTORY]
#
# The same seeds give the same tables; DIRECTORY (this one unless told) is where they go.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
columns=connections,overhead_us,seed,goodput_mbps,mean_rtt_ms,sampled_rtt_ms,drops,timeouts,jain,tcp,warm_up_s,measured_s,ns2,loss,window

command -v ns >/dev/null || { echo "remake.sh: ns is missing (apt install ns2)" >&2; exit 1; }

# sweep TABLE TCP OVERHEAD_US SEED... : adds a line for every number of connections and seed.
sweep() {
    table=$out/$1.csv.new tcp=$2 overhead=$3
    shift 3
    [ -e "$table" ] || echo "$columns" >"$table"
    for connections in $(seq 64); do
        for seed; do
            ns "$here/static-sweep.tcl" "$connections" "$seed" "$tcp" "$overhead" >>"$table"
        done
    done
}

# losses TABLE : the same with windows of 1 MiB and random loss, measured for ten times as long.
losses() {
    table=$out/$1.csv.new
    echo "$columns" >"$table"
    for connections in 1 2 4 8 16 32; do
        for loss in 0.0001 0.001 0.01; do
            ns "$here/static-sweep.tcl" "$connections" 1 Sack1 120 20 600 "$loss" 718 >>"$table"
        done
    done
}

rm -f "$out"/ns2-*.csv.new
sweep ns2-static-sweep Sack1 120 1
sweep ns2-static-sweep Sack1 0 1 2 3
sweep ns2-static-sweep-newreno Newreno 120 1
losses ns2-loss
for table in "$out"/ns2-*.csv.new; do
    mv "$table" "${table%.new}"
done
