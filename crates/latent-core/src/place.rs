//! Where an event lies, and the one text form of it.

use std::str::FromStr;

use crate::{CoreError, Offset, Partition, TextProblem, TopicName};

/// Where an event lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The topic.
    pub topic: TopicName,
    /// Its partition.
    pub partition: Partition,
    /// The position there.
    pub offset: Offset,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.topic.as_str(), self.partition, self.offset)
    }
}

impl FromStr for Place {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        let refused = || CoreError::text("place", text, TextProblem::Shape { expected: "TOPIC/PARTITION/OFFSET" });
        let mut parts = text.split('/');
        let (Some(topic), Some(partition), Some(offset), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(refused());
        };
        let topic = TopicName::parse(topic)?;
        let partition = Partition(number(partition).ok_or_else(refused)?);
        Ok(Self { topic, partition, offset: Offset(number(offset).ok_or_else(refused)?) })
    }
}

/// A number in the one form it is written in.
pub(crate) fn number<T: FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number: &T| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_in_the_one_form_it_is_written_in() {
        let place = Place { topic: TopicName::parse("t").unwrap(), partition: Partition(0), offset: Offset(9) };
        assert_eq!(place.to_string(), "t/0/9");
        assert_eq!("t/0/9".parse(), Ok(place));
        for bad in ["", "t/0", "t/0/0/0", "t/00/0", "t/+1/0", "t/0/x", "/0/0"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
