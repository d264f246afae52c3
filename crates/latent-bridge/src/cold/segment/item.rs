//! One entry of a block: a record at its offset, or an offset whose record could not be read any more when it was archived.

use bytes::Bytes;
use latent_core::{Attributes, MediaType, Offset, Record, StoredRecord, Uid, UnixMillis, limits};

use super::cursor::{Cursor, put_text};

const RECORD: u8 = 1;
const DAMAGED: u8 = 2;

/// Kind, offset, time, four lengths of texts, count of attributes, length of the payload, and the longest of each; attributes of a parked record
/// with their lengths.
pub(super) const ITEM_BYTES_MAX: usize = 64
    + limits::UID_BYTES.max_usize()
    + limits::KEY_BYTES.max_usize()
    + limits::MEDIA_TYPE_BYTES.max_usize()
    + 2 * limits::PARKED_ATTRIBUTES_BYTES.max_usize()
    + limits::EVENT_BYTES.max_usize();

/// What lies at an offset of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A record.
    Record {
        /// Where.
        offset: Offset,
        /// The record.
        record: Record,
    },
    /// A record that the log could not read any more. Its offset is taken all the same.
    Damaged {
        /// Where.
        offset: Offset,
    },
}

impl From<StoredRecord> for Item {
    fn from(stored: StoredRecord) -> Self {
        Self::Record { offset: stored.offset, record: stored.record }
    }
}

impl Item {
    /// Where it lies.
    pub const fn offset(&self) -> Offset {
        match self {
            Self::Record { offset, .. } | Self::Damaged { offset } => *offset,
        }
    }

    /// The record, if there is one.
    pub const fn record(&self) -> Option<&Record> {
        match self {
            Self::Record { record, .. } => Some(record),
            Self::Damaged { .. } => None,
        }
    }

    /// Appends it to a block. `None`, with `out` as it was, when a field is longer than its limit, which the record's types rule out.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        let whole = self.append(out).filter(|()| out.len() - start <= ITEM_BYTES_MAX);
        if whole.is_none() {
            out.truncate(start);
        }
        whole
    }

    fn append(&self, out: &mut Vec<u8>) -> Option<()> {
        out.push(if self.record().is_some() { RECORD } else { DAMAGED });
        out.extend_from_slice(&self.offset().0.to_le_bytes());
        let Some(record) = self.record() else { return Some(()) };
        out.extend_from_slice(&record.stored_at.0.to_le_bytes());
        for text in [record.uid.as_str(), &record.key, record.media_type.as_str()] {
            put_text(out, text)?;
        }
        out.extend_from_slice(&u16::try_from(record.attributes.iter().len()).ok()?.to_le_bytes());
        for (name, value) in record.attributes.iter() {
            put_text(out, name)?;
            put_text(out, value)?;
        }
        out.extend_from_slice(&u32::try_from(record.payload.len()).ok()?.to_le_bytes());
        out.extend_from_slice(&record.payload);
        Some(())
    }

    /// The item that a block goes on with. `None` when that is none. A media type that equals the `known` one is shared with it.
    pub(super) fn decode(block: &mut Cursor<'_>, known: Option<&MediaType>) -> Option<Self> {
        let kind = block.u8()?;
        let offset = Offset(block.u64()?);
        match kind {
            DAMAGED => Some(Self::Damaged { offset }),
            RECORD => Some(Self::Record { offset, record: decode_record(block, known)? }),
            _ => None,
        }
    }
}

fn decode_record(block: &mut Cursor<'_>, known: Option<&MediaType>) -> Option<Record> {
    let stored_at = UnixMillis(block.u64()?);
    let uid = Uid::parse(block.text()?).ok()?;
    let key = block.text().filter(|key| key.len() <= limits::KEY_BYTES.max_usize())?.to_owned();
    let media_type = block.text()?;
    let media_type = match known.filter(|known| known.as_str() == media_type) {
        Some(known) => known.clone(),
        None => MediaType::parse(media_type).ok()?,
    };
    let count = block.u16()?;
    let pairs = (0..count).map(|_| Some((block.text()?.to_owned(), block.text()?.to_owned()))).collect::<Option<Vec<_>>>()?;
    let attributes = Attributes::stored(pairs).ok()?;
    let bytes = usize::try_from(block.u32()?).ok().filter(|bytes| *bytes <= limits::EVENT_BYTES.max_usize())?;
    let payload = Bytes::copy_from_slice(block.take(bytes)?);
    Some(Record { uid, key, media_type, attributes, payload, stored_at })
}
