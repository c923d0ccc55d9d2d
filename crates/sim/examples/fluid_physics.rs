use sim::fluid::*;
fn main() {
    let run = |name: &str, p: &FluidPath, n: u32, c: FluidControl| {
        let rate_cap = p.rate / 1500.0 * 1448.0;
        let b = (p.rate / 8.0 * 300.0) as u64;
        let t0 = std::time::Instant::now();
        let o = FluidTransfer { path: p, bytes: b, seed: 1 }.run_static(StaticSetting { streams: n, control: c });
        let rate = b as f64 * 8.0 / o.elapsed;
        println!("{name:30} {:5} x{n:3} {:8.2} Mbit/s {:5.1} % q {:6.2} ms rtx {} W={:.1} {:?}", c.name(), rate / 1e6, rate / rate_cap * 100.0, o.queueing_delay * 1e3, o.retransmits, rate * p.rtt / 8.0 / 1448.0 / n as f64, t0.elapsed());
    };
    use FluidControl::*;
    for (r, t, q) in [(1e8, 0.05, 1.0), (1e9, 0.05, 1.0), (1e9, 0.1, 0.1), (1e10, 0.1, 1.0), (1e9, 0.0005, 1.0), (1e9,0.05,8.0)] {
        for c in [Reno, Cubic, Bbr] { for n in [1, 4, 16] { run(&format!("{:.0}M {}ms q{q}", r / 1e6, t * 1e3), &FluidPath::new(r, t, q), n, c); } }
    }
    for l in [1e-4, 1e-3, 1e-2, 0.05] {
        let mut p = FluidPath::new(1e9, 0.05, 1.0);
        p.loss = FluidLoss { ratio: l, burst: 1.0 };
        println!("reno expected W {:.1}, cubic {:.1}", (1.5f64 / l).sqrt(), (1.054 * (0.05f64 / l).powf(0.75)).max((1.5f64/l).sqrt()));
        for c in [Reno, Cubic, Bbr] { run(&format!("loss {l}"), &p, 1, c); }
        run(&format!("loss {l}"), &p, 16, Cubic);
    }
    let mut p = FluidPath::new(2e8, 0.05, 0.1); p.queue = 0.1 * p.bdp();
    for n in [1, 4, 16] { run("ref: 200M 50ms q.1", &p, n, Cubic); run("ref: 200M 50ms q.1", &p, n, Bbr); }
    let mut p = FluidPath::new(1e9, 0.05, 1.0); p.receive_window = 1e6;
    for n in [1, 2, 4] { run("window 1e6", &p, n, Cubic); println!("{}", n as f64 * 1e6 * 8.0 / 0.05 / 1e6); }
    let mut p = FluidPath::new(1e9, 0.05, 1.0); p.send_buffer = 4194304.0;
    for n in [1, 2, 4] { run("sndbuf 4M: ref 460", &p, n, Cubic); }
    let mut p = FluidPath::new(1e9, 0.05, 1.0); p.policer = Some(FluidPolicer { rate: 1e8, bucket: 1e6 });
    for n in [1, 4, 16] { run("policer 100M", &p, n, Cubic); run("policer 100M", &p, n, Bbr); }
    let mut p = FluidPath::new(1e8, 0.05, 4.0); p.discipline = QueueDiscipline::FqCodel;
    for n in [1, 4, 16] { run("fqcodel", &p, n, Cubic); run("fqcodel", &p, n, Bbr); }
    let mut p = FluidPath::new(1e8, 0.05, 4.0); p.discipline = QueueDiscipline::Red;
    for n in [1, 4, 16] { run("red", &p, n, Cubic); run("red", &p, n, Bbr); }
    let mut p = FluidPath::new(1e8, 0.05, 1.0); p.competitors = vec![Competitor { from: 0.0, until: f64::INFINITY }; 4];
    for n in [1, 4, 16] { run("4 competitors", &p, n, Cubic); run("4 competitors", &p, n, Bbr); }
    for e in [EndLimit::Source(5e6), EndLimit::Sink(5e6), EndLimit::PerStream(5e6)] {
        let mut p = FluidPath::new(1e8, 0.05, 1.0); p.end = e;
        for n in [1, 2, 4] { run(&format!("{e:?}"), &p, n, Cubic); }
    }
}
