use proto::command::{DataType, TransferMode};
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::TransferKind;
use proto::sizing::SocketBuffers;
use proto::streams::ParallelismRange;

use super::*;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn order() -> TransferOrder {
    let mut have = RangeSet::new();
    have.insert(0, 1000);
    TransferOrder {
        request: TransferRequest {
            kind: TransferKind::Retrieve {
                path: VPath::root(),
                partial: Some((5000, 7000)),
                already_received: have,
                checksum_algorithm: None,
            },
            mode: TransferMode::Extended,
            type_: DataType::Image,
            streams: ParallelismRange {
                start: 3,
                min: 2,
                max: 9,
            },
            congestion_control: "auto".to_owned(),
            delayed_passive: None,
            buffers: SocketBuffers::sized_by(BufferSizing::Auto),
            perf_marker_seconds: 5,
            range_marker_seconds: 0,
            protection: proto::security::DataChannelProtection::default(),
        },
        stripe: Stripe::SINGLE,
        connections: DataAddresses::Targets(StripeAddresses::single(at(40_000))),
        terms: TransferTerms {
            congestion: CongestionChoice::Auto,
            drs_interval: DrsInterval::default(),
            io: IoMethod::Sendfile,
            block: 1 << 18,
            stall: Duration::from_secs(7),
            connect: Duration::from_secs(8),
            max_connections: 12,
            prior: Prior::with_streams(4),
        },
        uploader: Uploader::User("ann".to_owned()),
    }
}

/// Accepts only types of plain data: they can be cloned and compared, and borrow nothing.
fn is_plain<T: Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static>() {}

/// Fails to compile if `$handle` implements `$plain`: then the call of `check` is ambiguous.
macro_rules! lacks {
    ($handle:ty, $plain:path) => {{
        trait NotImplemented<Which> {
            fn check() {}
        }
        struct Implemented;
        impl<T: ?Sized> NotImplemented<()> for T {}
        impl<T: ?Sized + $plain> NotImplemented<Implemented> for T {}
        <$handle as NotImplemented<_>>::check();
    }};
}

#[test]
fn orders_are_plain_data_and_handles_are_not() {
    is_plain::<TransferOrder>();
    // Open, counted or shared things do not implement PartialEq, so an order cannot contain them.
    lacks!(LocalHandles, PartialEq);
    lacks!(LocalHandles, Clone);
    lacks!(SessionFiles, PartialEq);
    lacks!(ControlSocket, PartialEq);
    lacks!(SessionDataChannel, PartialEq);
    lacks!(StreamBudget, PartialEq);
    lacks!(RateLimit, PartialEq);
    lacks!(drs::DrsEndpoint, PartialEq);
    lacks!(QueuePermit, PartialEq);
}

#[test]
fn a_copy_of_an_order_is_the_same_order() {
    let one = order();
    let copy = one.clone();
    assert_eq!(one, copy);
    // The copy does not change when the original is dropped or changed.
    let mut other = one.clone();
    drop(one);
    other.stripe = Stripe::new(1, 2).unwrap();
    assert_ne!(other, copy);
    assert_eq!(copy, order());
    let elsewhere = TransferOrder {
        connections: DataAddresses::Targets(StripeAddresses::single(at(40_001))),
        ..order()
    };
    assert_ne!(elsewhere, copy);
}

#[test]
fn settings_combine_the_order_and_the_local_handles() {
    let settings = order().settings(Some(RateLimit::new(9000)), None);
    assert_eq!(
        (settings.mode, settings.type_),
        (TransferMode::Extended, DataType::Image)
    );
    let streams = [
        settings.streams,
        settings.min_streams,
        settings.max_streams,
        settings.max_connections,
    ];
    assert_eq!(streams, [3, 2, 9, 12]);
    assert!(settings.adapt);
    let options = &settings.options;
    assert_eq!(options.congestion, CongestionChoice::Auto);
    assert_eq!((options.io, options.block), (IoMethod::Sendfile, 1 << 18));
    assert_eq!(options.buffers.sizing, BufferSizing::Auto);
    let seconds = [options.stall, settings.connect_timeout].map(|time| time.as_secs());
    assert_eq!(seconds, [7, 8]);
    assert_eq!(options.rate.as_ref().map(RateLimit::rate), Some(9000));
    assert_eq!(settings.prior, Prior::with_streams(4));
}

#[test]
fn only_a_retrieve_with_a_range_of_streams_adapts() {
    let with = |change: fn(&mut TransferRequest)| {
        let mut order = order();
        change(&mut order.request);
        order.settings(None, None).adapt
    };
    assert!(with(|_| {}));
    assert!(!with(|request| request.streams = ParallelismRange::fixed(3)));
    assert!(!with(|request| {
        request.kind = TransferKind::Store {
            path: VPath::root(),
            disposition: proto::server::StoreDisposition::Truncate,
            announced_size: None,
            checksum_algorithm: None,
            expected_checksum: None,
            modified: None,
        };
    }));
}

#[test]
fn the_order_has_the_addresses_of_the_channel() {
    let of = |channel: &SessionDataChannel| DataAddresses::of(Some(channel));
    assert_eq!(DataAddresses::of(None), DataAddresses::Unknown);
    let none = SessionDataChannel::connect_to(Vec::new(), None);
    assert_eq!(of(&none), DataAddresses::Unknown);
    let targets = vec![at(40_000), at(40_001)];
    let active = SessionDataChannel::connect_to(targets.clone(), None);
    let expected = StripeAddresses::new(targets).unwrap();
    assert_eq!(of(&active), DataAddresses::Targets(expected));
    let passive = SessionDataChannel::listen(&ListenOptions {
        ip: [127, 0, 0, 1].into(),
        ports: None,
        accept: data::channel::AllowedPeers::Any,
        buffers: SocketBuffers::default(),
    })
    .unwrap();
    let expected = StripeAddresses::single(passive.local_addr().unwrap());
    assert_eq!(of(&passive), DataAddresses::Awaited(expected));
}
