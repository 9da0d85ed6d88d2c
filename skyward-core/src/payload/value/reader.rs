//! Reads MessagePack token by token, without copying its bytes.

use rmp::Marker;

/// A position in a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'de> {
    data: &'de [u8],
    at: usize,
}

/// One token: a scalar with its content, or the header of a list or dict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'de> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    /// A text whose bytes were not checked to be UTF-8 yet.
    Str(&'de [u8]),
    Bin(&'de [u8]),
    List(u32),
    Dict(u32),
    Ext(i8, &'de [u8]),
}

/// Bytes that are not MessagePack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Malformed {
    Short,
    Reserved,
}

impl<'de> Reader<'de> {
    pub(super) fn new(data: &'de [u8]) -> Self {
        Self { data, at: 0 }
    }

    /// The number of bytes that were read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The number of remaining bytes. The next value has at most this many elements.
    pub(super) fn remaining(&self) -> usize {
        self.data.len() - self.at
    }

    pub(super) fn at(&self, position: usize) -> Self {
        Self { data: self.data, at: position.min(self.data.len()) }
    }

    pub(super) fn rest(&self) -> &'de [u8] {
        self.data.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.data.get(self.at).copied()
    }

    pub(super) fn token(&mut self) -> Result<Token<'de>, Malformed> {
        let [marker] = self.take()?;
        Ok(match Marker::from_u8(marker) {
            Marker::FixPos(value) => Token::Unsigned(value.into()),
            Marker::FixNeg(value) => Token::Signed(value.into()),
            Marker::Null => Token::Nil,
            Marker::Reserved => return Err(Malformed::Reserved),
            Marker::False => Token::Bool(false),
            Marker::True => Token::Bool(true),
            Marker::U8 => Token::Unsigned(u8::from_be_bytes(self.take()?).into()),
            Marker::U16 => Token::Unsigned(u16::from_be_bytes(self.take()?).into()),
            Marker::U32 => Token::Unsigned(u32::from_be_bytes(self.take()?).into()),
            Marker::U64 => Token::Unsigned(u64::from_be_bytes(self.take()?)),
            Marker::I8 => Token::Signed(i8::from_be_bytes(self.take()?).into()),
            Marker::I16 => Token::Signed(i16::from_be_bytes(self.take()?).into()),
            Marker::I32 => Token::Signed(i32::from_be_bytes(self.take()?).into()),
            Marker::I64 => Token::Signed(i64::from_be_bytes(self.take()?)),
            Marker::F32 => Token::F32(f32::from_be_bytes(self.take()?)),
            Marker::F64 => Token::F64(f64::from_be_bytes(self.take()?)),
            Marker::FixStr(length) => Token::Str(self.slice(length.into())?),
            Marker::Str8 => Token::Str(self.slice8()?),
            Marker::Str16 => Token::Str(self.slice16()?),
            Marker::Str32 => Token::Str(self.slice32()?),
            Marker::Bin8 => Token::Bin(self.slice8()?),
            Marker::Bin16 => Token::Bin(self.slice16()?),
            Marker::Bin32 => Token::Bin(self.slice32()?),
            Marker::FixArray(length) => Token::List(length.into()),
            Marker::Array16 => Token::List(u16::from_be_bytes(self.take()?).into()),
            Marker::Array32 => Token::List(u32::from_be_bytes(self.take()?)),
            Marker::FixMap(length) => Token::Dict(length.into()),
            Marker::Map16 => Token::Dict(u16::from_be_bytes(self.take()?).into()),
            Marker::Map32 => Token::Dict(u32::from_be_bytes(self.take()?)),
            Marker::FixExt1 => self.extension(1)?,
            Marker::FixExt2 => self.extension(2)?,
            Marker::FixExt4 => self.extension(4)?,
            Marker::FixExt8 => self.extension(8)?,
            Marker::FixExt16 => self.extension(16)?,
            Marker::Ext8 => {
                let length = u8::from_be_bytes(self.take()?);
                self.extension(length.into())?
            }
            Marker::Ext16 => {
                let length = u16::from_be_bytes(self.take()?);
                self.extension(length.into())?
            }
            Marker::Ext32 => {
                let length = u32::from_be_bytes(self.take()?);
                self.extension(length as usize)?
            }
        })
    }

    /// Skips one value, of any depth, without recursion.
    pub(super) fn skip(&mut self) -> Result<(), Malformed> {
        let mut left = 1_u64;
        while left > 0 {
            left -= 1;
            match self.token()? {
                Token::List(length) => left += u64::from(length),
                Token::Dict(length) => left += 2 * u64::from(length),
                _ => {}
            }
        }
        Ok(())
    }

    fn extension(&mut self, length: usize) -> Result<Token<'de>, Malformed> {
        let kind = i8::from_be_bytes(self.take()?);
        Ok(Token::Ext(kind, self.slice(length)?))
    }

    fn slice8(&mut self) -> Result<&'de [u8], Malformed> {
        let length = u8::from_be_bytes(self.take()?);
        self.slice(length.into())
    }

    fn slice16(&mut self) -> Result<&'de [u8], Malformed> {
        let length = u16::from_be_bytes(self.take()?);
        self.slice(length.into())
    }

    fn slice32(&mut self) -> Result<&'de [u8], Malformed> {
        let length = u32::from_be_bytes(self.take()?);
        self.slice(length as usize)
    }

    fn slice(&mut self, length: usize) -> Result<&'de [u8], Malformed> {
        let slice = self.rest().get(..length).ok_or(Malformed::Short)?;
        self.at += length;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = *self.rest().first_chunk().ok_or(Malformed::Short)?;
        self.at += N;
        Ok(bytes)
    }
}

impl Malformed {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Short => "it ends in the middle",
            Self::Reserved => "it contains the byte 0xc1, which MessagePack does not use",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_length_is_an_error_without_an_allocation() {
        for bytes in [&b"\xc6\xff\xff\xff\xff"[..], b"\xdb\xff\xff\xff\xffab", b"\xc9\xff\xff\xff\xff\x01"] {
            assert_eq!(Reader::new(bytes).token(), Err(Malformed::Short));
        }
        assert_eq!(Reader::new(b"\xdd\xff\xff\xff\xff\x01").skip(), Err(Malformed::Short));
    }

    #[test]
    fn skipping_does_not_recurse() {
        let mut deep = vec![0x91; 1 << 20];
        deep.push(0xc0);
        let mut reader = Reader::new(&deep);
        assert_eq!(reader.skip(), Ok(()));
        assert_eq!(reader.remaining(), 0);
    }
}
