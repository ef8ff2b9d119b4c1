//! The drawn ids of sessions, leases and owner tokens.
//!
//! It must never ask the system for randomness: numbers are drawn by whoever is handed in.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Characters of an id.
const LENGTH: usize = 8;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Where the numbers come from that ids are made of.
pub trait Draw {
    /// A number that nobody can foresee; `None` where there is no randomness to be had.
    fn draw(&mut self) -> Option<u64>;
}

/// A text that is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an id is {LENGTH} characters of a-z and 0-9")]
pub struct NotAnId;

/// What the ids have in common: how they are spelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Letters([u8; LENGTH]);

impl Letters {
    fn from_number(mut number: u64) -> Self {
        let mut letters = [0; LENGTH];
        for letter in &mut letters {
            *letter = ALPHABET[(number % ALPHABET.len() as u64) as usize];
            number /= ALPHABET.len() as u64;
        }
        Self(letters)
    }

    fn parse(text: &str) -> Result<Self, NotAnId> {
        let letters: [u8; LENGTH] = text.as_bytes().try_into().map_err(|_| NotAnId)?;
        if letters.iter().all(|letter| ALPHABET.contains(letter)) {
            Ok(Self(letters))
        } else {
            Err(NotAnId)
        }
    }

    fn as_str(&self) -> &str {
        // The alphabet is ASCII, so this is always text.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

macro_rules! drawn_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Letters);

        impl $name {
            /// The id that a drawn number stands for.
            #[must_use]
            pub fn from_number(number: u64) -> Self {
                Self(Letters::from_number(number))
            }

            /// The id as it is written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                Letters::parse(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    };
}

drawn_id! {
    /// A session, in paths and in requests.
    SessionId
}
drawn_id! {
    /// A lease, in paths and in requests.
    LeaseId
}
drawn_id! {
    /// An owner token.
    TokenId
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn an_id_is_eight_letters_and_digits() {
        for number in [0, 1, 35, 36, u64::MAX] {
            let id = SessionId::from_number(number);
            assert_eq!(id.as_str().len(), LENGTH);
            assert_eq!(id.as_str().parse(), Ok(id));
        }
        assert_eq!(LeaseId::from_number(0).to_string(), "aaaaaaaa");
        assert_eq!(LeaseId::from_number(36).to_string(), "abaaaaaa");
    }

    #[test]
    fn what_is_spelled_otherwise_is_no_id() {
        for text in
            ["", "abcdefg", "abcdefghi", "Abcdefgh", "abcd-fgh", "abcdéfg", "../../..", "\0"]
        {
            assert_eq!(text.parse::<TokenId>(), Err(NotAnId), "{text:?}");
            let wire: StrDeserializer<'_, Error> = text.into_deserializer();
            assert!(TokenId::deserialize(wire).is_err(), "{text:?}");
        }
    }
}
