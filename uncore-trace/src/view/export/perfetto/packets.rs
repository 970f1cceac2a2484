//! Packets of a trace, written one by one.
//!
//! Guarantees: all packets belong to one sequence, whose first packet sets the clock of all times;
//! each name is written once, before its first use; only the names are kept in memory.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use prost::Message as _;
use prost::encoding::{WireType, encode_key};

use super::proto::{
    BUILTIN_CLOCK_MONOTONIC, BUILTIN_CLOCK_REALTIME, CHILD_ORDERING_EXPLICIT, ClockReading,
    ClockSnapshot, CounterDescriptor, DebugAnnotation, InternedData, InternedName,
    SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE, SIBLING_MERGE_BEHAVIOR_NONE,
    TRACE_PACKET, TYPE_COUNTER, TYPE_INSTANT, TYPE_SLICE_BEGIN, TYPE_SLICE_END, TracePacket,
    TracePacketDefaults, TrackDescriptor, TrackEvent,
};
use crate::clock::Snapshot;

/// Id of the sequence; 0 is not allowed.
const SEQUENCE: u32 = 1;

/// Number of a track in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrackId(u64);

/// A detail of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EventDetail {
    /// A number.
    Number(i64),
    /// An escaped text.
    Text(String),
}

/// An event with a name on a track of slices.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(super) enum SliceEvent {
    /// A moment.
    Instant = TYPE_INSTANT,
    /// The begin of a slice.
    SliceBegin = TYPE_SLICE_BEGIN,
}

/// A trace that is being written.
pub(super) struct TracePackets<W> {
    output: W,
    buffer: Vec<u8>,
    tracks: u64,
    events: u64,
    names: HashMap<String, u64>,
    details: HashMap<&'static str, u64>,
}

/// How a counter track is drawn.
#[derive(Debug, Clone)]
pub(super) struct TrackScale {
    /// Unit of its values.
    pub unit: String,
    /// Counter tracks with the same key have a common scale.
    pub shared_key: String,
}

impl<W: Write> TracePackets<W> {
    /// Begins a trace.
    pub(super) fn new(output: W, clocks: Snapshot) -> Result<Self> {
        let mut packets = Self {
            output,
            buffer: Vec::new(),
            tracks: 0,
            events: 0,
            names: HashMap::new(),
            details: HashMap::new(),
        };
        let clock =
            |id, ns: i64| ClockReading { clock_id: Some(id), timestamp: u64::try_from(ns).ok() };
        packets.write_packet(&TracePacket {
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            trace_packet_defaults: Some(TracePacketDefaults {
                timestamp_clock_id: Some(BUILTIN_CLOCK_MONOTONIC),
            }),
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![
                    clock(BUILTIN_CLOCK_MONOTONIC, clocks.mono_ns),
                    clock(BUILTIN_CLOCK_REALTIME, clocks.wall_ns),
                ],
                primary_trace_clock: Some(BUILTIN_CLOCK_MONOTONIC as i32),
            }),
            ..TracePacket::default()
        })?;
        Ok(packets)
    }

    /// Ends the trace; returns the number of tracks and events.
    pub(super) fn end_trace(self) -> (u64, u64) {
        (self.tracks, self.events)
    }

    /// Adds a track below another. Tracks are shown in the order in which they are added; equal
    /// names stay separate.
    pub(super) fn add_track(
        &mut self,
        name: &str,
        parent: Option<TrackId>,
        scale: Option<&TrackScale>,
    ) -> Result<TrackId> {
        self.tracks += 1;
        let track = TrackId(self.tracks);
        let counter = scale.map(|scale| CounterDescriptor {
            unit_name: Some(scale.unit.clone()),
            y_axis_share_key: Some(scale.shared_key.clone()),
        });
        self.write_packet(&TracePacket {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(track.0),
                name: Some(name.to_owned()),
                parent_uuid: parent.map(|parent| parent.0),
                child_ordering: counter.is_none().then_some(CHILD_ORDERING_EXPLICIT),
                counter,
                sibling_order_rank: i32::try_from(self.tracks).ok(),
                sibling_merge_behavior: Some(SIBLING_MERGE_BEHAVIOR_NONE),
            }),
            ..TracePacket::default()
        })?;
        Ok(track)
    }

    /// Writes that the counter has this value from `ns` on.
    pub(super) fn write_value(&mut self, track: TrackId, ns: i64, value: f64) -> Result<()> {
        self.write_event(
            track,
            ns,
            TYPE_COUNTER,
            TrackEvent { double_counter_value: Some(value), ..<_>::default() },
        )
    }

    /// Ends the slice that began last.
    pub(super) fn end_slice(&mut self, track: TrackId, ns: i64) -> Result<()> {
        self.write_event(track, ns, TYPE_SLICE_END, TrackEvent::default())
    }

    /// Writes an instant, or the begin of a slice, which the next [`Self::end_slice`] on the track
    /// ends; also the names that are new.
    pub(super) fn write_named_event(
        &mut self,
        event_type: SliceEvent,
        track: TrackId,
        ns: i64,
        name: &str,
        details: Vec<(&'static str, EventDetail)>,
    ) -> Result<()> {
        let mut new = InternedData::default();
        let interned =
            |iid, name: &str| InternedName { iid: Some(iid), name: Some(name.to_owned()) };
        let name_iid = if let Some(iid) = self.names.get(name) {
            *iid
        } else {
            let iid = self.names.len() as u64 + 1;
            self.names.insert(name.to_owned(), iid);
            new.event_names.push(interned(iid, name));
            iid
        };
        let mut debug_annotations = Vec::with_capacity(details.len());
        for (name, detail) in details {
            let next_iid = self.details.len() as u64 + 1;
            let iid = *self.details.entry(name).or_insert_with(|| {
                new.debug_annotation_names.push(interned(next_iid, name));
                next_iid
            });
            let (int_value, string_value) = match detail {
                EventDetail::Number(number) => (Some(number), None),
                EventDetail::Text(text) => (None, Some(text)),
            };
            debug_annotations.push(DebugAnnotation {
                name_iid: Some(iid),
                int_value,
                string_value,
            });
        }
        if new != InternedData::default() {
            self.write_packet(&TracePacket {
                sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
                interned_data: Some(new),
                ..TracePacket::default()
            })?;
        }
        let name_iid = Some(name_iid);
        let event = TrackEvent { debug_annotations, name_iid, ..TrackEvent::default() };
        self.write_event(track, ns, event_type as i32, event)
    }

    fn write_event(
        &mut self,
        track: TrackId,
        ns: i64,
        event_type: i32,
        event: TrackEvent,
    ) -> Result<()> {
        self.events += 1;
        self.write_packet(&TracePacket {
            timestamp: u64::try_from(ns).ok(),
            sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
            track_event: Some(TrackEvent {
                r#type: Some(event_type),
                track_uuid: Some(track.0),
                ..event
            }),
            ..TracePacket::default()
        })
    }

    fn write_packet(&mut self, packet: &TracePacket) -> Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet.clone() };
        self.buffer.clear();
        encode_key(TRACE_PACKET, WireType::LengthDelimited, &mut self.buffer);
        packet.encode_length_delimited(&mut self.buffer)?;
        self.output.write_all(&self.buffer)?;
        Ok(())
    }
}
