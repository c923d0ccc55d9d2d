//! Changes to the bytes between two ends, taken from the fuzzer's input.

/// Changes, in the order of the messages. Each begins with a byte that selects it; without further input
/// messages pass unchanged.
pub struct Tampering<'a> {
    input: &'a [u8],
    changed: bool,
}

impl<'a> Tampering<'a> {
    /// The changes that an input describes.
    pub fn new(input: &'a [u8]) -> Self {
        Self {
            input,
            changed: false,
        }
    }

    /// Whether a message was changed.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// The input that is left.
    pub fn rest(&self) -> &'a [u8] {
        self.input
    }

    /// Takes a message and returns what arrives.
    pub fn apply(&mut self, message: &[u8]) -> Vec<u8> {
        let arrives = match self.byte().unwrap_or(0) % 5 {
            0 => message.to_vec(),
            1 => self.chunk().to_vec(),
            2 => self.flipped(message),
            3 => {
                let kept = usize::from(self.number()).min(message.len());
                message[..kept].to_vec()
            }
            _ => [message, self.chunk()].concat(),
        };
        self.changed |= arrives != message;
        arrives
    }

    /// Changes single bytes: a count, then a position and a value each.
    fn flipped(&mut self, message: &[u8]) -> Vec<u8> {
        let mut bytes = message.to_vec();
        for _ in 0..self.byte().unwrap_or(0) % 16 {
            let (position, value) = (usize::from(self.number()), self.byte().unwrap_or(0));
            if let Some(byte) = bytes.get_mut(position) {
                *byte ^= value;
            }
        }
        bytes
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.input.split_first()?;
        self.input = rest;
        Some(first)
    }

    fn number(&mut self) -> u16 {
        let (high, low) = (self.byte(), self.byte());
        u16::from_be_bytes([high.unwrap_or(0), low.unwrap_or(0)])
    }

    /// A length of two bytes and so many bytes, or those that are left.
    fn chunk(&mut self) -> &'a [u8] {
        let length = usize::from(self.number()).min(self.input.len());
        let (chunk, rest) = self.input.split_at(length);
        self.input = rest;
        chunk
    }
}
