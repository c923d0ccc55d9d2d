# The modes MI, MI+ and AIMD of Ito, Ohsaki and Imase (2008) in ns-2: one transfer in chunks.
#
#   ns autopar.tcl MODE SEED [KEY=VALUE ...]
#
# MODE is mi, mi+, aimd, or a number of connections, which then stays the same. Keys, with the
# paper's values (section 4): rate=100 (Mbit/s), delay=10 (ms, one way, of the bottleneck),
# window=65536 (bytes), eta=0.8, delta=10 (s), gigabytes=10, overhead=120 (microseconds; see
# static-sweep.tcl), access=1000 (Mbit/s), chunks=0 (1: a line for each chunk instead), tcp=Sack1 (or
# Reno), tick=0.001 (s; ns-2's default is 0.01), minrto=0.2 (s), whole=0 (1: a chunk ends when the last packet of every
# connection is acknowledged; otherwise one packet of each may still be on the way, and its acknowledgement restarts the
# timer of the next chunk's first packets), own=0 (1: own access links for each connection).
#
# The network and TCP are those of static-sweep.tcl. What the paper's text leaves open is decided so
# that its end points come out: connections are kept between chunks and share what is left of a chunk;
# R is the running average of commands that are answered while data flows, ten a second, of which lost
# ones do not count; MI+ ends with the largest value of both terms of equation (1). A chunk begins when
# the last byte of the one before has been acknowledged, which costs a round trip, as a command does.
#
# The tuner is written from the paper, independently of the crate `tune`.
#
# Prints one CSV line:
#   mode,rate_mbps,access_mbps,delay_ms,window,eta,seed,gigabytes,goodput_mbps,streams,
#   whole_goodput_mbps,settled_s,tcp,overhead_us,ns2
#
# goodput_mbps        of the whole file
# streams             of the last chunk that the mode sized itself; so is
# whole_goodput_mbps
# settled_s           when the mode had ended, or 0 (AIMD never does)

if {[llength $argv] < 2} {
    puts stderr "usage: ns autopar.tcl MODE SEED ?KEY=VALUE ...?"
    exit 2
}
set mode [lindex $argv 0]
set seed [lindex $argv 1]
array set option {
    rate 100 delay 10 window 65536 eta 0.8 delta 10 gigabytes 10 overhead 120 access 1000 chunks 0
    tcp Sack1 tick 0.001 minrto 0.2 whole 0 own 0
}
foreach word [lrange $argv 2 end] {
    lassign [split $word =] key value
    if {![info exists option($key)]} { puts stderr "no such key: $key"; exit 2 }
    set option($key) $value
}

set header  40
set payload 1460
set most    256
set gamma   2.0
set alpha   2.0
set beta    0.5
set rho     0.1
# How often the connections are looked at, seconds.
set look    0.002

Agent/TCP set packetSize_ $payload
Agent/TCP set useHeaders_ true
Agent/TCP set tcpip_base_hdr_size_ $header
Agent/TCP set window_ [expr {int($option(window) / $payload)}]
Agent/TCP set minrto_ $option(minrto)
Agent/TCP set tcpTick_ $option(tick)
Agent/TCP set overhead_ [expr {$option(overhead) / 1e6}]
Agent/TCPSink set packetSize_ $header
Agent/Ping set packetSize_ 64

# --- Network -----------------------------------------------------------------------------------

set ns [new Simulator]
ns-random $seed
set server [$ns node]
set near   [$ns node]
set far    [$ns node]
set client [$ns node]
$ns duplex-link $server $near [expr {$option(access) * 1e6}] 0.001 DropTail
$ns duplex-link $near $far [expr {$option(rate) * 1e6}] [expr {$option(delay) / 1e3}] DropTail
$ns duplex-link $far $client [expr {$option(access) * 1e6}] 0.001 DropTail
$ns queue-limit $near $far 1000
foreach {from to} [list $server $near $far $client $client $far $far $near $near $server] {
    $ns queue-limit $from $to 1000000
}

# --- Round trip --------------------------------------------------------------------------------

set average 0.0

Agent/Ping instproc recv {from rtt} {
    global average rho
    set sample [expr {$rtt / 1000.0}]
    set average [expr {$average > 0 ? $average * (1 - $rho) + $sample * $rho : $sample}]
}

set asking [new Agent/Ping]
set answering [new Agent/Ping]
$ns attach-agent $client $asking
$ns attach-agent $server $answering
$ns connect $asking $answering

proc ask {} {
    global ns asking
    $asking send
    $ns at [expr {[$ns now] + 0.1}] ask
}

# --- Connections -------------------------------------------------------------------------------

set opened {}
# Packets of the chunk that no connection has been given.
set pool 0

array set sinks {Sack1 TCPSink/Sack1 Newreno TCPSink Reno TCPSink}

# Pairs of hosts for connections with own access links. ns-2 computes routes before it starts.
set pairs {}
if {$option(own)} {
    for {set i 0} {$i < $most + 1} {incr i} {
        set from [$ns node]
        set to [$ns node]
        $ns duplex-link $from $near [expr {$option(access) * 1e6}] 0.001 DropTail
        $ns duplex-link $far $to [expr {$option(access) * 1e6}] 0.001 DropTail
        foreach {a b} [list $from $near $near $from $far $to $to $far] { $ns queue-limit $a $b 1000000 }
        lappend pairs [list $from $to]
    }
}

# The two hosts of the next connection.
proc hosts {} {
    global pairs server client
    if {![llength $pairs]} { return [list $server $client] }
    set pair [lindex $pairs 0]
    set pairs [lrange $pairs 1 end]
    return $pair
}

proc have {wanted} {
    global ns opened server client given option sinks
    while {[llength $opened] < $wanted} {
        set tcp [new Agent/TCP/$option(tcp)]
        set sink [new Agent/$sinks($option(tcp))]
        lassign [hosts] from to
        $ns attach-agent $from $tcp
        $ns attach-agent $to $sink
        $ns connect $tcp $sink
        set given($tcp) 0
        lappend opened $tcp
    }
    set opened [lrange $opened 0 [expr {$wanted - 1}]]
}

# Gives each connection a window more than it has sent: as much as it can send at once.
proc feed {} {
    global opened pool given option payload
    set ahead [expr {int($option(window) / $payload)}]
    foreach tcp $opened {
        if {$pool <= 0} { return }
        set unsent [expr {$given($tcp) - [$tcp set t_seqno_]}]
        set more [expr {min($pool, $ahead - $unsent)}]
        if {$more > 0} {
            incr given($tcp) $more
            incr pool -$more
            $tcp advanceby $more
        }
    }
}

proc acknowledged {} {
    global opened given option
    # Packet 0 is the SYN.
    foreach tcp $opened {
        if {[$tcp set ack_] < $given($tcp) - !$option(whole)} { return 0 }
    }
    return 1
}

# --- Chunks ------------------------------------------------------------------------------------

set bytes_left [expr {wide($option(gigabytes) * 1e9)}]
set streams 1
set settled 0
set settled_at 0
set goodputs {}
set last_streams 0
set whole_streams 0
set whole_goodput 0
if {[string is integer $mode]} {
    set streams $mode
    set settled 1
}

# Equations (13) to (15); bytes.
proc size {} {
    global goodputs streams last_streams option average
    switch [llength $goodputs] {
        0 { set rate [expr {$streams * $option(window) / $average}] }
        1 { set rate [expr {double($streams) / $last_streams * [lindex $goodputs 0]}] }
        default {
            set now [lindex $goodputs end]
            set rate [expr {$now * $now / [lindex $goodputs end-1]}]
        }
    }
    return [expr {max(65536, wide($rate * $option(delta)))}]
}

proc start {} {
    global ns streams bytes_left chunk began pool payload own
    set wanted [size]
    set own [expr {$wanted < $bytes_left}]
    set chunk [expr {min($wanted, $bytes_left)}]
    incr bytes_left -$chunk
    set began [$ns now]
    set pool [expr {int(ceil(double($chunk) / $payload))}]
    have $streams
    watch
}

proc watch {} {
    global ns pool look
    if {$pool > 0} { feed }
    if {$pool <= 0 && [acknowledged]} {
        ended
    } else {
        $ns at [expr {[$ns now] + ($pool > 0 ? $look : 0.0005)}] watch
    }
}

proc ended {} {
    global ns streams chunk began average goodputs last_streams own option first
    global whole_streams whole_goodput bytes_left
    set goodput [expr {$chunk / ([$ns now] - $began)}]
    lappend goodputs $goodput
    set last_streams $streams
    if {$own} {
        set whole_streams $streams
        set whole_goodput $goodput
    }
    if {$option(chunks)} {
        global mode seed
        puts [format "%s,%d,%.2f,%d,%.3f,%.1f" $mode $seed [expr {[$ns now] - $first}] $streams \
            [expr {$goodput * 8e-6}] [expr {$average * 1e3}]]
    }
    if {$bytes_left <= 0} { report }
    tune $goodput
    start
}

# Section 3.4.
proc tune {goodput} {
    global ns mode streams settled settled_at option average gamma alpha beta most first
    if {$settled} { return }
    if {$goodput > $option(eta) * $streams * $option(window) / $average} {
        set next [expr {$mode eq "aimd" ? $streams + $alpha : $streams * $gamma}]
        set streams [expr {min($most, int($next))}]
        return
    }
    if {$mode eq "aimd"} {
        set streams [expr {max(1, int($streams * (1 - $beta)))}]
        return
    }
    set settled 1
    set settled_at [expr {[$ns now] - $first}]
    if {$mode eq "mi+"} { set streams [optimum $goodput] }
}

# The argument of the largest min(NW/R, second term), with B from the second term at the present N.
proc optimum {goodput} {
    global streams average option payload most
    set window [expr {double($option(window)) / $payload}]
    set per_stream [expr {$goodput / $payload * $average / $streams}]
    set low 1.1
    set high [expr {$per_stream + 3}]
    for {set i 0} {$i < 80} {incr i} {
        set middle [expr {($low + $high) / 2}]
        if {[share $middle] < $per_stream} { set low $middle } else { set high $middle }
    }
    set packets [expr {$high * $streams}]
    set best 1
    set best_value 0
    for {set n 1} {$n <= $most} {incr n} {
        set value [expr {min($n * $window, $n * [share [expr {$packets / $n}]])}]
        if {$value > $best_value} { set best $n; set best_value $value }
    }
    return $best
}

# The second term of equation (1) times R/N, with equation (2) at BR/N = x.
proc share {x} {
    set inverse [expr {-2 + 2 * $x + 2.0 / 3 * $x * $x}]
    if {$inverse <= 1} { return 0 }
    set p [expr {1.0 / $inverse}]
    return [expr {(1 - $p) / 2 * (-3 + sqrt(6 + 21 * $p) / sqrt($p))}]
}

proc report {} {
    global ns mode seed option first whole_streams whole_goodput settled_at
    if {!$option(chunks)} {
        puts [format "%s,%g,%g,%g,%d,%g,%d,%g,%.3f,%d,%.3f,%.1f,%s,%g,%s" $mode $option(rate) \
            $option(access) $option(delay) $option(window) $option(eta) $seed $option(gigabytes) \
            [expr {$option(gigabytes) * 8e3 / ([$ns now] - $first)}] $whole_streams \
            [expr {$whole_goodput * 8e-6}] $settled_at $option(tcp) $option(overhead) [ns-version]]
    }
    exit 0
}

set first 1.0
# Each seed asks at another moment: whether the last command before a chunk's end meets the queue or
# the pipe that has drained is luck, and moves R by up to a tenth.
$ns at [expr {fmod($seed * 0.618034, 1.0) * 0.1}] ask
$ns at $first start
$ns run
