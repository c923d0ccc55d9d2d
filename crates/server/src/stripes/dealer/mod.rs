//! Which stripe sends which bytes: a decision without I/O. Time is an argument.

use std::time::{Duration, Instant};

use proto::ranges::RangeSet;
use proto::stripes::{Stripe, StripeLayout};

use super::RecentRate;

/// Smallest part that is dealt, bytes, where nothing is known of the stripe: a node asks for the next one meanwhile.
const MIN_DEAL: u64 = 1 << 20;
/// Smallest part of a slow stripe, bytes.
const LEAST_DEAL: u64 = 256 << 10;
/// The smallest part of a stripe is what it sends in this time, between [`LEAST_DEAL`] and [`MIN_DEAL`].
const LEAST_TIME: Duration = Duration::from_millis(50);
/// A stripe is dealt no more than it sends in this time.
const MOST_TIME: Duration = Duration::from_secs(1);
/// Most blocks of a layout that are dealt at a time: each is a range of its own.
const MAX_BLOCKS: usize = 4096;
/// A stripe that ends so much later than another one gives bytes back. With less than this left, the transfer is at its end.
const WORTH: Duration = Duration::from_millis(100);
/// Fewest bytes that are taken back.
const LEAST_BACK: u64 = 64 << 10;

/// An order of the front end to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DealtOrder {
    /// Send these ranges, too; `last`: there will be no others.
    Send {
        stripe: usize,
        ranges: RangeSet,
        last: bool,
    },
    /// Give back up to so many bytes that were not begun.
    TakeBack { stripe: usize, bytes: u64 },
}

/// Deals the bytes of a file to the stripes that send it. Without a layout a stripe gets more when it is about to need it, and what a slow one
/// was dealt goes to others when nothing else is left.
#[derive(Debug)]
pub(crate) struct RangeDealer {
    layout: StripeLayout,
    /// [`StripeLayout::Free`]: what is not dealt. Else: all that is sent.
    wanted: RangeSet,
    /// With a layout: what each stripe gets next.
    shares: Vec<StripeShare>,
    loads: Vec<StripeLoad>,
    /// [`StripeLayout::Free`]: stripes get bytes up to a multiple of so many.
    piece: u64,
}

/// The part of one stripe by a layout, as far as it was not dealt.
#[derive(Debug, Clone)]
struct StripeShare {
    /// Looked at already.
    ready: RangeSet,
    /// Where the rest begins; `None`: there is no more.
    next: Option<u64>,
}

/// The bytes that one stripe has to send, and its rate.
#[derive(Debug, Clone)]
struct StripeLoad {
    rate: RecentRate,
    /// Bytes that it was dealt and has not given back.
    dealt: u64,
    /// It has asked for about so many bytes and has no answer yet.
    asks: Option<u64>,
    /// It was told to give so many bytes back and has not answered yet.
    recalled: Option<u64>,
    /// It had little to give back the last time.
    is_dry: bool,
    /// It was told that there are no more.
    has_ended: bool,
}

impl StripeLoad {
    fn new(now: Instant) -> Self {
        Self {
            rate: RecentRate::new(now),
            dealt: 0,
            asks: None,
            recalled: None,
            is_dry: false,
            has_ended: false,
        }
    }

    /// Bytes that it has still to send, as far as is known.
    fn left(&self, now: Instant) -> u64 {
        let (at, moved) = self.rate.last();
        let since = now.saturating_duration_since(at);
        let since = sent_in(self.rate.per_second().unwrap_or(0), since);
        self.dealt.saturating_sub(moved.saturating_add(since))
    }

    /// How long it needs for them; `None`: its rate is unknown.
    fn time_left(&self, now: Instant) -> Option<Duration> {
        let left = self.left(now);
        if left == 0 {
            return Some(Duration::ZERO);
        }
        let rate = self.rate.per_second()?.max(1);
        let micros = u128::from(left) * 1_000_000 / u128::from(rate);
        Some(Duration::from_micros(
            u64::try_from(micros).unwrap_or(u64::MAX),
        ))
    }

    /// The smallest part for it, bytes.
    fn least_deal(&self) -> u64 {
        let rate = self.rate.per_second();
        rate.map_or(MIN_DEAL, |rate| {
            sent_in(rate, LEAST_TIME).clamp(LEAST_DEAL, MIN_DEAL)
        })
    }
}

impl RangeDealer {
    /// Deals `wanted`, file offsets, to `stripes` stripes.
    pub(crate) fn new(layout: StripeLayout, wanted: RangeSet, stripes: u32, now: Instant) -> Self {
        let share = StripeShare {
            ready: RangeSet::new(),
            next: Some(0),
        };
        Self {
            layout,
            wanted,
            shares: vec![share; stripes as usize],
            loads: vec![StripeLoad::new(now); stripes as usize],
            piece: 1,
        }
    }

    /// The same for nodes that read pieces of so many bytes, from a multiple of them to the next: two do not read of the same one, if that
    /// can be had.
    pub(crate) fn in_pieces(self, piece: u64) -> Self {
        Self {
            piece: piece.max(1),
            ..self
        }
    }

    /// The first bytes of a stripe, at most about `bytes`; whether they are its last ones.
    pub(crate) fn first(&mut self, stripe: Stripe, bytes: u64) -> (RangeSet, bool) {
        let number = stripe.number() as usize;
        let ranges = match self.layout {
            StripeLayout::Free => self.deal_free(number, bytes),
            _ => return self.deal_by_layout(stripe),
        };
        (ranges, false)
    }

    /// Notes that a stripe could send about `bytes` more soon.
    pub(crate) fn note_request(&mut self, stripe: usize, bytes: u64) {
        if let Some(load) = self.loads.get_mut(stripe).filter(|load| !load.has_ended) {
            load.asks = Some(bytes);
        }
    }

    /// Notes how much a stripe has sent.
    pub(crate) fn note_sent(&mut self, stripe: usize, bytes: u64, now: Instant) {
        if let Some(load) = self.loads.get_mut(stripe) {
            let has_nothing = load.dealt <= bytes && load.rate.last().1 == bytes;
            match has_nothing {
                true => load.rate.rest_until(now),
                false => load.rate.note(bytes, now),
            }
        }
    }

    /// Takes what a stripe has given back: ranges that it was dealt and will not send.
    pub(crate) fn note_given_back(&mut self, stripe: usize, ranges: &RangeSet) {
        if let Some(load) = self.loads.get_mut(stripe) {
            let bytes = ranges.byte_count();
            load.dealt = load.dealt.saturating_sub(bytes);
            if let Some(recalled) = load.recalled.take() {
                load.is_dry = bytes < recalled / 2;
            }
            self.wanted.extend(ranges);
        }
    }

    /// Whether a stripe waits for an answer. If one does, [`RangeDealer::orders`] is to be asked every few milliseconds.
    pub(crate) fn has_requests(&self) -> bool {
        self.loads.iter().any(|load| load.asks.is_some())
    }

    /// The orders that are due now.
    pub(crate) fn orders(&mut self, now: Instant) -> Vec<DealtOrder> {
        let mut orders = Vec::new();
        for number in self.asking(now) {
            let asked = self.loads[number].asks.unwrap_or_default();
            let dealt = match self.layout {
                StripeLayout::Free if self.wanted.is_empty() => continue,
                StripeLayout::Free => (self.deal_free(number, asked), false),
                _ => match stripe(number, self.loads.len()) {
                    Some(stripe) => self.deal_by_layout(stripe),
                    None => continue,
                },
            };
            orders.push(self.answer(number, dealt));
        }
        if !orders.is_empty() {
            return orders;
        }
        match self.recall(now) {
            AtTheEnd::Balanced => Vec::new(),
            AtTheEnd::TakeBack(stripe, bytes) => {
                self.loads[stripe].recalled = Some(bytes);
                vec![DealtOrder::TakeBack { stripe, bytes }]
            }
            AtTheEnd::Over => {
                let waiting = self.asking(now);
                let end = waiting
                    .into_iter()
                    .map(|number| self.answer(number, (RangeSet::new(), true)));
                end.collect()
            }
        }
    }

    fn answer(&mut self, stripe: usize, (ranges, last): (RangeSet, bool)) -> DealtOrder {
        let load = &mut self.loads[stripe];
        load.asks = None;
        load.has_ended |= last;
        DealtOrder::Send {
            stripe,
            ranges,
            last,
        }
    }

    /// The stripes that wait for an answer, that with least to send first.
    fn asking(&self, now: Instant) -> Vec<usize> {
        let asking = self.loads.iter().enumerate();
        let asking = asking.filter(|(_, load)| load.asks.is_some());
        let mut asking: Vec<usize> = asking.map(|(number, _)| number).collect();
        asking.sort_by_key(|number| self.loads[*number].time_left(now));
        asking
    }

    /// The next step when everything is dealt.
    fn recall(&self, now: Instant) -> AtTheEnd {
        let running = || {
            let all = self.loads.iter().enumerate();
            all.filter(|(_, load)| !load.has_ended)
        };
        let (mut first_free, mut longest) = (None, None);
        let (mut bytes, mut rates) = (0u64, 0u64);
        for (number, load) in running() {
            if load.recalled.is_some() {
                return AtTheEnd::Balanced;
            }
            let time = match load.time_left(now) {
                Some(time) => time,
                None if load.asks.is_some() => Duration::ZERO,
                // Its first report is on its way.
                None => return AtTheEnd::Balanced,
            };
            bytes = bytes.saturating_add(load.left(now));
            rates = rates.saturating_add(load.rate.per_second().unwrap_or(0));
            if load.asks.is_some() && first_free.is_none_or(|first| time < first) {
                first_free = Some(time);
            }
            if !load.is_dry && longest.is_none_or(|(_, most)| time > most) {
                longest = Some((number, time));
            }
        }
        let (Some(first), Some((number, time))) = (first_free, longest) else {
            return AtTheEnd::Over;
        };
        if time < WORTH {
            return AtTheEnd::Over;
        }
        let load = &self.loads[number];
        // It keeps the bytes that it sends until all are done.
        let until = u128::from(bytes) * 1_000_000 / u128::from(rates.max(1));
        let until = Duration::from_micros(u64::try_from(until).unwrap_or(u64::MAX));
        let keeps = sent_in(load.rate.per_second().unwrap_or(0), until);
        let surplus = load.left(now).saturating_sub(keeps);
        match time.saturating_sub(first) > WORTH && surplus >= LEAST_BACK {
            true => AtTheEnd::TakeBack(number, surplus),
            false => AtTheEnd::Balanced,
        }
    }

    /// The next bytes of a stripe that could send about `bytes` soon: at most half of its part, by its rate, of what is left, so that
    /// one that becomes slow keeps little from the others.
    fn deal_free(&mut self, number: usize, bytes: u64) -> RangeSet {
        let left = self.wanted.byte_count();
        let known: Option<Vec<u64>> = self.loads.iter().map(|l| l.rate.per_second()).collect();
        let Some(load) = self.loads.get(number) else {
            return RangeSet::new();
        };
        let all = known.map(|rates| rates.iter().sum::<u64>());
        let (fair, most) = match (all.filter(|all| *all > 0), load.rate.per_second()) {
            (Some(all), Some(own)) => {
                let fair = u128::from(left) * u128::from(own) / (2 * u128::from(all));
                (u64::try_from(fair).unwrap_or(left), sent_in(own, MOST_TIME))
            }
            _ => (left / (2 * (self.loads.len() as u64).max(1)), u64::MAX),
        };
        let size = bytes.min(fair).min(most).max(load.least_deal()).min(left);
        let start = self.wanted.next_from(0).unwrap_or_default();
        let end = start.saturating_add(size);
        let end = end.checked_next_multiple_of(self.piece).unwrap_or(end);
        let dealt = take(&mut self.wanted, end - start);
        self.note_dealt(number, &dealt);
        dealt
    }

    fn deal_by_layout(&mut self, stripe: Stripe) -> (RangeSet, bool) {
        let number = stripe.number() as usize;
        let Some(share) = self.shares.get_mut(number) else {
            return (RangeSet::new(), true);
        };
        // A part of the layout may be stored already.
        while let Some(from) = share.next
            && share.ready.is_empty()
        {
            (share.ready, share.next) = self.layout.share(stripe, &self.wanted, from, MAX_BLOCKS);
        }
        let dealt = take(&mut share.ready, u64::MAX);
        let last = share.ready.is_empty() && share.next.is_none();
        self.note_dealt(number, &dealt);
        (dealt, last)
    }

    fn note_dealt(&mut self, number: usize, dealt: &RangeSet) {
        if let Some(load) = self.loads.get_mut(number) {
            load.dealt += dealt.byte_count();
            load.is_dry = false;
        }
    }
}

/// The next step when everything is dealt.
enum AtTheEnd {
    /// Wait: all end at about the same time, or an answer is missing.
    Balanced,
    /// Take so many bytes back from a stripe.
    TakeBack(usize, u64),
    /// Nothing more will be dealt.
    Over,
}

fn stripe(number: usize, count: usize) -> Option<Stripe> {
    Stripe::new(u32::try_from(number).ok()?, u32::try_from(count).ok()?)
}

/// Bytes that are sent at this rate in this time.
fn sent_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Takes the first `bytes` of a set, in at most [`MAX_BLOCKS`] ranges: as many as a message may have.
fn take(left: &mut RangeSet, bytes: u64) -> RangeSet {
    let mut taken = RangeSet::new();
    for range in left.iter() {
        let room = bytes - taken.byte_count();
        if room == 0 || taken.range_count() == MAX_BLOCKS {
            break;
        }
        taken.insert(range.start, range.end.min(range.start.saturating_add(room)));
    }
    for range in taken.iter() {
        left.remove(range.start, range.end);
    }
    taken
}

#[cfg(test)]
mod tests;
