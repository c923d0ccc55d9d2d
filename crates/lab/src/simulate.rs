//! `longhaul lab sim`: the simulator from the command line.
