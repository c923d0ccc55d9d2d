#!/bin/sh
# Makes the ns-2 reference tables again: about 20 minutes on one core. Needs Debian's ns2.
#
#   crates/lab/validation/remake.sh [DIRECTORY]
#
# The same seeds give the same tables; DIRECTORY (this one unless told) is where they go.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
columns=connections,overhead_us,seed,goodput_mbps,mean_rtt_ms,sampled_rtt_ms,drops,timeouts,jain,tcp,warm_up_s,measured_s,ns2

command -v ns >/dev/null || { echo "remake.sh: ns is missing (apt install ns2)" >&2; exit 1; }

# sweep FILE TCP OVERHEAD_US SEED... : a line for every number of connections and seed.
sweep() {
    file=$1 tcp=$2 overhead=$3
    shift 3
    for connections in $(seq 64); do
        for seed; do
            ns "$here/static-sweep.tcl" "$connections" "$seed" "$tcp" "$overhead" >>"$file"
        done
    done
}

# table NAME TCP SEED... : without and with a random time in the sending host.
table() {
    file=$out/$1.csv.new tcp=$2 name=$1
    shift 2
    echo "$columns" >"$file"
    sweep "$file" "$tcp" 120 "$@"
    sweep "$file" "$tcp" 0 "$@"
    mv "$file" "$out/$name.csv"
}

table ns2-static-sweep Sack1 1 2 3
table ns2-static-sweep-newreno Newreno 1
