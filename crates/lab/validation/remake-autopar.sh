#!/bin/sh
# Makes the ns-2 reference tables of the modes MI, MI+ and AIMD again: about 15 minutes on one core.
# Needs Debian's ns2.
#
#   crates/lab/validation/remake-autopar.sh [DIRECTORY]
#
# The same seeds give the same tables; DIRECTORY (this one unless told) is where they go.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
columns=mode,rate_mbps,delay_ms,window,eta,seed,gigabytes,goodput_mbps,streams,whole_goodput_mbps,settled_s,tcp,overhead_us,ns2

command -v ns >/dev/null || { echo "remake-autopar.sh: ns is missing (apt install ns2)" >&2; exit 1; }

table=$out/ns2-autopar.csv
echo "$columns" >"$table.new"
run() {
    ns "$here/autopar.tcl" "$@" >>"$table.new"
}

# The base setting, figures 3 and 4.
for mode in mi mi+ aimd; do
    run $mode 1
    run $mode 2 gigabytes=2
    run $mode 3 gigabytes=2
done
for mode in mi mi+ aimd; do
    # Figures 6 and 7.
    for delay in 1 5 20 50 100; do
        run $mode 1 gigabytes=2 delay=$delay
    done
    for eta in 0.5 0.7 0.9 0.95; do
        run $mode 1 gigabytes=2 eta=$eta
    done
done
# Figure 5.
for mode in mi mi+ aimd 1; do
    for rate in 10 50 200 1000; do
        run $mode 1 gigabytes=2 rate=$rate window=1048576 access=10000
    done
done
mv "$table.new" "$table"
