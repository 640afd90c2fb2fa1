//! Values of any type between ranks, as JSON: for everything that happens rarely. Gradients, sums and weights travel as numbers.
//!
//! JSON has no NaN and no infinity: a float that may be one must not travel this way.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Error;
use super::thread::Comm;

impl Comm {
    /// Gathers a value of each rank on rank 0, in order of rank; others get `None`. Collective.
    pub fn gather<T: Serialize + DeserializeOwned>(
        &self,
        what: &'static str,
        value: &T,
    ) -> Result<Option<Vec<T>>, Error> {
        let own = encode(what, value)?;
        let all = self.run(what, |world| world.gather(&own))?;
        all.map(|all| all.iter().map(|bytes| decode(what, bytes)).collect()).transpose()
    }

    /// Gathers a value of each rank on all ranks, in order of rank. Collective.
    pub fn gather_all<T: Serialize + DeserializeOwned>(&self, what: &'static str, value: &T) -> Result<Vec<T>, Error> {
        let own = encode(what, value)?;
        let all = self.run(what, |world| {
            let mut all = world.gather(&own)?.map_or_else(Vec::new, |all| [b"[", &*all.join(&b','), b"]"].concat());
            world.broadcast(&mut all, 0)?;
            Ok(all)
        })?;
        decode(what, &all)
    }

    /// Whether `yes` is true on all ranks. Collective.
    pub fn all(&self, what: &'static str, yes: bool) -> Result<bool, Error> {
        Ok(self.gather_all(what, &yes)?.into_iter().all(|yes| yes))
    }

    /// Gives rank 0's value to all ranks; those of other ranks are not looked at and may be `None`. Collective.
    pub fn broadcast<T: Serialize + DeserializeOwned>(
        &self,
        what: &'static str,
        value: Option<&T>,
    ) -> Result<T, Error> {
        let mut bytes = value.map_or(Ok(Vec::new()), |value| encode(what, value))?;
        self.run(what, |world| world.broadcast(&mut bytes, 0))?;
        decode(what, &bytes)
    }
}

fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|e| Error::Unsendable { what, why: e.to_string() })
}

fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|e| Error::Value { what, why: e.to_string() })
}
