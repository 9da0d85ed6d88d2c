//! Frames: `u32 head length | u32 body length | head | body`, little-endian. No I/O.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, ErrorKind, Result};
use crate::payload::memory::{LARGE, Memory};

/// A frame: a head, which is a MessagePack array, and a body that the framing does not interpret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// At most [`MAX_HEAD`] bytes.
    pub head: Bytes,
    /// At most the negotiated `max_frame_bytes`.
    pub body: Bytes,
}

/// Splits a byte stream into frames. Feed it through [`buffer`](Self::buffer) or
/// [`room`](Self::room), then take frames until there are no more.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    /// The current frame, if its body is large: only bytes of this body can come next.
    large: Option<(Bytes, Memory)>,
    max_body: usize,
    /// How much room is made at a time. It grows with the traffic, so that an idle link needs
    /// little memory.
    chunk: usize,
}

/// Where received bytes are put.
#[derive(Debug)]
pub enum Room<'d> {
    /// Append to this buffer.
    Buffer(&'d mut BytesMut),
    /// Write to the front of this slice, and pass the count to [`Decoder::advance`].
    Body(&'d mut [u8]),
}

impl Frame {
    /// Encodes the prefix and the head; the body follows unchanged.
    pub fn prefix(head: &[u8], body_length: usize) -> Result<BytesMut> {
        let too_large = |what: &str, length: usize, most: usize| {
            Error::new(
                ErrorKind::Payload,
                format!("a {what} of {length} bytes is too large for a frame, which holds at most {most}"),
            )
        };
        let body = u32::try_from(body_length).map_err(|_| too_large("body", body_length, u32::MAX as usize))?;
        if head.len() > MAX_HEAD {
            return Err(too_large("head", head.len(), MAX_HEAD));
        }
        let mut bytes =
            BytesMut::with_capacity(PREFIX + head.len() + if body_length <= INLINE_BODY { body_length } else { 0 });
        bytes.put_u32_le(head.len() as u32);
        bytes.put_u32_le(body);
        bytes.extend_from_slice(head);
        Ok(bytes)
    }
}

impl Decoder {
    /// Creates a decoder that refuses bodies over `max_body` bytes.
    pub fn new(max_body: usize) -> Self {
        // Before the first read there is no room, as after a read that filled all of it.
        Self { buffer: BytesMut::new(), large: None, max_body, chunk: FIRST_CHUNK / 2 }
    }

    /// The buffer for received bytes, with room for the rest of the current frame. A length alone
    /// reserves only a limited room, plus a multiple of what has arrived, so that a large body is
    /// rarely moved.
    pub fn buffer(&mut self) -> &mut BytesMut {
        // Bytes within a large body do not begin with lengths.
        let lengths = if self.large.is_none() { self.lengths() } else { None };
        let whole = lengths.map_or(0, |(head, body)| PREFIX + head + body);
        let missing = whole.saturating_sub(self.buffer.len());
        let most = (self.buffer.len() * 3).max(UNSEEN);
        let enough = if missing <= most { missing } else { 0 };
        let room = self.buffer.capacity() - self.buffer.len();
        if room == 0 {
            self.chunk = (self.chunk * 2).min(READ_CHUNK);
        }
        if room < enough.max(self.chunk / 8) {
            self.buffer.reserve(missing.clamp(self.chunk, most));
        }
        &mut self.buffer
    }

    /// The same, or the final place of a large body's rest, so that it need not be copied.
    pub fn room(&mut self) -> Room<'_> {
        if self.large.is_none() {
            return Room::Buffer(self.buffer());
        }
        let rest = self.large.as_mut().map(|(_, body)| body.rest());
        Room::Body(rest.unwrap_or_default())
    }

    /// Notes that this many bytes were put into [`Room::Body`].
    pub fn advance(&mut self, count: usize) {
        if let Some((_, body)) = &mut self.large {
            body.advance(count);
        }
    }

    /// The next complete frame, or `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for lengths out of bounds; the stream cannot be used afterwards.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        if let Some((head, mut body)) = self.large.take() {
            let count = body.rest().len().min(self.buffer.len());
            body.extend(&self.buffer.split_to(count));
            if body.rest().is_empty() {
                return Ok(Some(Frame { head, body: body.freeze() }));
            }
            self.large = Some((head, body));
            return Ok(None);
        }
        let Some((head, body)) = self.lengths() else { return Ok(None) };
        if head > MAX_HEAD || body > self.max_body {
            return Err(Error::new(
                ErrorKind::Protocol,
                format!("a frame of {head} + {body} bytes arrived, but the limit is {MAX_HEAD} + {}", self.max_body),
            )
            .with_hint("raise `Limits::max_frame_bytes` if the values are meant to be that large"));
        }
        if self.buffer.len() < PREFIX + head + body {
            if body >= LARGE && self.buffer.len() >= PREFIX + head {
                self.begin_large(head, body);
            }
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let head = self.buffer.split_to(head).freeze();
        let body = self.buffer.split_to(body).freeze();
        Ok(Some(Frame { head, body }))
    }

    /// Whether a frame has begun and not ended.
    pub fn is_mid_frame(&self) -> bool {
        self.large.is_some() || !self.buffer.is_empty()
    }

    /// Has the rest of a large body received directly into its final place.
    fn begin_large(&mut self, head: usize, body: usize) {
        // Without such memory it is received in the buffer, as a small one is.
        let Some(mut memory) = Memory::allocate(body) else { return };
        self.buffer.advance(PREFIX);
        let head = self.buffer.split_to(head).freeze();
        memory.extend(&self.buffer.split());
        self.large = Some((head, memory));
    }

    fn lengths(&self) -> Option<(usize, usize)> {
        let length = |at: usize| {
            let bytes = self.buffer.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        Some((length(0)?, length(4)?))
    }
}

/// The largest head, in bytes.
pub const MAX_HEAD: usize = 1 << 20;
/// A body up to this size is copied behind its head, so that both leave in one write.
pub const INLINE_BODY: usize = 16 << 10;
const PREFIX: usize = 8;
const FIRST_CHUNK: usize = 2 << 10;
const READ_CHUNK: usize = 64 << 10;
/// The most room that a length alone reserves.
const UNSEEN: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(head: &[u8], body: &[u8]) -> Vec<u8> {
        let mut bytes = Frame::prefix(head, body.len()).unwrap().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn frames_are_complete_in_any_division_of_the_bytes() {
        let small = [frame(b"\x91\x01", b""), frame(b"\x92\x02\x03", b"body"), frame(b"\x91\x04", &[9; 70_000])];
        for chunk in [1, 3, 7, 4096, 100_000] {
            let frames = decode(&small.concat(), chunk, 1 << 20);
            assert_eq!(frames.len(), 3, "in chunks of {chunk}");
            assert_eq!(&frames[1].body[..], b"body");
            assert_eq!(frames[2].body.len(), 70_000);
        }
    }

    #[test]
    fn large_bodies_and_their_neighbours_are_complete() {
        let body: Vec<u8> = (0..LARGE + 1234).map(|index| (index / 7) as u8).collect();
        let around = [frame(b"\x91\x01", b"before"), frame(b"\x91\x02", &body), frame(b"\x91\x03", b"after")].concat();
        for chunk in [1000, 65_536, LARGE, around.len()] {
            let frames = decode(&around, chunk, 1 << 30);
            assert_eq!(frames.len(), 3, "in chunks of {chunk}");
            assert_eq!(&frames[0].body[..], &b"before"[..]);
            assert_eq!(&frames[2].body[..], &b"after"[..]);
            assert!(frames[1].body == body && &frames[1].head[..] == b"\x91\x02", "in chunks of {chunk}");
        }
    }

    fn decode(stream: &[u8], chunk: usize, max_body: usize) -> Vec<Frame> {
        let mut decoder = Decoder::new(max_body);
        let mut frames = Vec::new();
        for (index, mut part) in stream.chunks(chunk).enumerate() {
            while !part.is_empty() {
                match decoder.room() {
                    Room::Buffer(buffer) => buffer.extend_from_slice(std::mem::take(&mut part)),
                    Room::Body(_) if index % 3 == 0 => {
                        decoder.buffer().extend_from_slice(std::mem::take(&mut part));
                    }
                    Room::Body(rest) => {
                        let count = rest.len().min(part.len());
                        rest[..count].copy_from_slice(&part[..count]);
                        decoder.advance(count);
                        part = &part[count..];
                    }
                }
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
        }
        assert!(!decoder.is_mid_frame());
        frames
    }

    #[test]
    fn a_length_alone_reserves_little_room() {
        let mut decoder = Decoder::new(1 << 30);
        decoder.buffer().extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0x3f]);
        assert!(decoder.next_frame().unwrap().is_none());
        assert!(decoder.buffer().capacity() < 32 << 20, "{}", decoder.buffer().capacity());
        // Received bytes get room, in few steps.
        let mut steps = 0;
        for _ in 0..(64 << 20) / READ_CHUNK {
            let before = decoder.buffer.capacity();
            // As a read does, which fills the available room.
            let room = decoder.buffer();
            let count = READ_CHUNK.min(room.capacity() - room.len());
            room.extend_from_slice(&[0; READ_CHUNK][..count]);
            steps += u32::from(decoder.buffer.capacity() != before);
        }
        assert!(steps < 6, "{steps}");
    }

    #[test]
    fn the_room_grows_when_it_is_filled() {
        let one = frame(b"\x91\x01", b"");
        let mut decoder = Decoder::new(10);
        for _ in 0..1000 {
            decoder.buffer().extend_from_slice(&one);
            assert!(decoder.next_frame().unwrap().is_some());
        }
        assert!(decoder.buffer().capacity() <= FIRST_CHUNK, "{}", decoder.buffer().capacity());
        let mut many = one.iter().cycle();
        for _ in 0..8 {
            let buffer = decoder.buffer();
            let room = buffer.capacity() - buffer.len();
            buffer.extend(many.by_ref().take(room));
            while decoder.next_frame().unwrap().is_some() {}
        }
        assert!(decoder.buffer().capacity() >= READ_CHUNK, "{}", decoder.buffer().capacity());
    }

    #[test]
    fn lengths_out_of_bounds_are_refused_before_any_room_is_reserved() {
        let mut decoder = Decoder::new(10);
        decoder.buffer.extend_from_slice(&[1, 0, 0, 0, 11, 0, 0, 0]);
        assert_eq!(decoder.next_frame().unwrap_err().kind(), ErrorKind::Protocol);
        let mut decoder = Decoder::new(10);
        decoder.buffer.extend_from_slice(&[0xff; 8]);
        assert!(decoder.next_frame().is_err());
    }
}
