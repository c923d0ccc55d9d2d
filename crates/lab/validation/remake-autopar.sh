#!/bin/sh
# Makes the ns-2 reference tables of the modes MI, MI+ and AIMD again: about 6 minutes on two cores.
# Needs Debian's ns2.
#
#   crates/lab/validation/remake-autopar.sh [DIRECTORY]
#
# The same seeds give the same tables; DIRECTORY (this one unless told) is where they go.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
columns=mode,rate_mbps,access_mbps,delay_ms,window,eta,seed,gigabytes,goodput_mbps,streams,whole_goodput_mbps,settled_s,tcp,overhead_us,ns2

command -v ns >/dev/null || { echo "remake-autopar.sh: ns is missing (apt install ns2)" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The arguments of every run, in the table's order.
runs() {
    # The base setting, figures 3 and 4.
    for seed in 1 2 3; do
        for mode in mi mi+ aimd; do
            echo "$mode $seed gigabytes=1"
        done
    done
    # Figures 6 and 7.
    for mode in mi mi+ aimd; do
        echo "$mode 1 gigabytes=1 delay=1"
        echo "$mode 1 gigabytes=1 delay=100"
        echo "$mode 1 gigabytes=1 eta=0.5"
    done
    for seed in 1 2 3; do
        echo "mi $seed gigabytes=1 eta=0.95"
    done
    # Figure 5.
    for mode in mi mi+ aimd 1; do
        echo "$mode 1 gigabytes=2.5 rate=1000 window=1048576 access=10000"
    done
}

runs | awk '{ printf "%03d %s\n", NR, $0 }' |
    WORK=$work xargs -P "$(nproc)" -I '{}' sh -c '
        set -- $1
        number=$1
        shift
        ns "$0" "$@" >"$WORK/$number"
    ' "$here/autopar.tcl" '{}'
{
    echo "$columns"
    cat "$work"/*
} >"$out/ns2-autopar.csv"
