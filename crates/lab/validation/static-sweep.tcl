# Static sweep of parallel TCP connections in ns-2: one point of the reference table.
#
#   ns static-sweep.tcl CONNECTIONS SEED [TCP [OVERHEAD_US [WARM_UP [MEASURED [LOSS [WINDOW]]]]]]
#
# The setting of Ito, Ohsaki and Imase (2008), section 4: a server and a client over two DropTail
# routers, B = 100 Mbit/s, tau = 10 ms one way, 1 000 packets of buffer, W = 64 KB, packets of
# 1 500 bytes. What the paper leaves open is chosen so that its end points come out: tau is the
# bottleneck's own delay, an access link adds 1 ms and is much faster than the bottleneck.
#
# TCP is Sack1 unless told otherwise: today's kernels recover with selective acknowledgements, and
# so does the simulator under test. Newreno repairs one loss a round trip.
#
# OVERHEAD_US is ns-2's overhead_: the sending host holds each packet back for a random time up to
# this many microseconds. At 0 every event is a fixed time after another one, and which connections
# lose at the full queue is decided by the phase in which they began, for the whole run (Floyd and
# Jacobson, On Traffic Phase Effects in Packet-Switched Gateways, 1991). 120, the time that the
# bottleneck needs for one packet, is what they found enough to remove that.
#
# LOSS is the share of data packets that are lost at random behind the bottleneck, WINDOW the most
# packets that a connection may have outstanding.
#
# Prints one CSV line:
#   connections,overhead_us,seed,goodput_mbps,mean_rtt_ms,sampled_rtt_ms,drops,timeouts,jain,tcp,
#   warm_up_s,measured_s,ns2,loss,window
#
# goodput_mbps    payload acknowledged in the measured interval
# mean_rtt_ms     round trip of a data packet at the mean queueing delay of the bottleneck, which is
#                 exact: the queue's time integral over the packets that left it (Little's law)
# sampled_rtt_ms  mean of the senders' last round-trip samples, ten times a second (1 ms ticks)
# drops           at the bottleneck, in the measured interval
# timeouts        retransmission timers that ran out, in the measured interval
# jain            Jain's fairness index of the connections' goodputs

proc argument {index default} {
    global argv
    if {$index < [llength $argv]} { return [lindex $argv $index] }
    return $default
}

set connections [argument 0 ""]
set seed        [argument 1 ""]
set variant     [argument 2 "Sack1"]
set overhead    [argument 3 0]
set warm_up     [argument 4 20]
set measured    [argument 5 60]
set loss        [argument 6 0]
if {$connections eq "" || $seed eq ""} {
    puts stderr "usage: ns static-sweep.tcl CONNECTIONS SEED ?TCP? ?OVERHEAD_US? ?WARM_UP? ?MEASURED? ?LOSS? ?WINDOW?"
    exit 2
}

# --- Setting -----------------------------------------------------------------------------------

set bottleneck_rate  100e6
set bottleneck_delay 0.010
set bottleneck_queue 1000
set access_rate      1e9
set access_delay     0.001
set packet           1500
set header           40
set payload          [expr {$packet - $header}]
set window           [argument 7 [expr {65536 / $payload}]]

Agent/TCP set packetSize_ $payload
Agent/TCP set useHeaders_ true
Agent/TCP set tcpip_base_hdr_size_ $header
Agent/TCP set window_ $window
Agent/TCP set minrto_ 0.2
Agent/TCP set tcpTick_ 0.001
Agent/TCP set overhead_ [expr {$overhead / 1e6}]
Agent/TCPSink set packetSize_ $header

# --- Network -----------------------------------------------------------------------------------

set ns [new Simulator]
ns-random $seed
set starts [new RandomVariable/Uniform]
$starts set min_ 0.0
$starts set max_ 1.0

set server [$ns node]
set near   [$ns node]
set far    [$ns node]
set client [$ns node]
$ns duplex-link $server $near $access_rate $access_delay DropTail
$ns duplex-link $near $far $bottleneck_rate $bottleneck_delay DropTail
$ns duplex-link $far $client $access_rate $access_delay DropTail
$ns queue-limit $near $far $bottleneck_queue
foreach {from to} [list $server $near $far $client $client $far $far $near $near $server] {
    $ns queue-limit $from $to 1000000
}
if {$loss > 0} {
    set misfortune [new ErrorModel]
    $misfortune unit pkt
    $misfortune set rate_ $loss
    $misfortune ranvar [new RandomVariable/Uniform]
    $misfortune drop-target [new Agent/Null]
    $ns link-lossmodel $misfortune $far $client
}
set monitor [$ns monitor-queue $near $far [open /dev/null w] 1]

# --- Connections -------------------------------------------------------------------------------

if {$variant eq "Sack1"} { set sink_variant "TCPSink/Sack1" } else { set sink_variant "TCPSink" }
for {set i 0} {$i < $connections} {incr i} {
    set tcp($i) [new Agent/TCP/$variant]
    set sink [new Agent/$sink_variant]
    $ns attach-agent $server $tcp($i)
    $ns attach-agent $client $sink
    $ns connect $tcp($i) $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($i)
    $ns at [$starts value] "$ftp start"
}

# --- Measurement -------------------------------------------------------------------------------

set rtt_sum 0.0
set rtt_samples 0

proc sample {} {
    global ns tcp connections rtt_sum rtt_samples warm_up measured
    for {set i 0} {$i < $connections} {incr i} {
        set rtt_sum [expr {$rtt_sum + [$tcp($i) set rtt_] * [$tcp($i) set tcpTick_]}]
        incr rtt_samples
    }
    if {[$ns now] + 0.1 < $warm_up + $measured} {
        $ns at [expr {[$ns now] + 0.1}] sample
    }
}

proc begin {} {
    global ns tcp connections monitor acked timeouts departed dropped
    for {set i 0} {$i < $connections} {incr i} {
        set acked($i) [$tcp($i) set ack_]
        set timeouts($i) [$tcp($i) set nrexmit_]
    }
    # The integral counts from here; the level of the queue is kept.
    set integral [$monitor get-pkts-integrator]
    $integral newpoint [$ns now] [$monitor set pkts_]
    $integral set sum_ 0.0
    set departed [$monitor set pdepartures_]
    set dropped [$monitor set pdrops_]
    sample
}

proc finish {} {
    global ns tcp connections monitor acked timeouts departed dropped
    global seed variant overhead warm_up measured
    global rtt_sum rtt_samples payload packet header loss window
    global bottleneck_rate bottleneck_delay access_rate access_delay
    set total 0.0
    set squares 0.0
    set timer_runs 0
    for {set i 0} {$i < $connections} {incr i} {
        set packets [expr {[$tcp($i) set ack_] - $acked($i)}]
        set total [expr {$total + $packets}]
        set squares [expr {$squares + double($packets) * $packets}]
        set timer_runs [expr {$timer_runs + [$tcp($i) set nrexmit_] - $timeouts($i)}]
    }
    set integral [$monitor get-pkts-integrator]
    $integral newpoint [$ns now] [$monitor set pkts_]
    set waiting [expr {[$integral set sum_] / ([$monitor set pdepartures_] - $departed)}]
    set propagation [expr {2 * ($bottleneck_delay + 2 * $access_delay)}]
    set sending [expr {8.0 * ($packet + $header) * (1 / $bottleneck_rate + 2 / $access_rate)}]
    puts [format "%d,%g,%d,%.3f,%.3f,%.3f,%d,%d,%.3f,%s,%g,%g,%s,%g,%d" \
        $connections $overhead $seed \
        [expr {$total * $payload * 8 / $measured / 1e6}] \
        [expr {1000 * ($propagation + $sending + $waiting)}] \
        [expr {1000 * $rtt_sum / $rtt_samples}] \
        [expr {int([$monitor set pdrops_] - $dropped)}] \
        $timer_runs \
        [expr {$total * $total / ($connections * $squares)}] \
        $variant $warm_up $measured [ns-version] $loss $window]
    exit 0
}

$ns at $warm_up begin
$ns at [expr {$warm_up + $measured}] finish
$ns run
