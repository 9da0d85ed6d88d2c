//! Errors as records for the developers of a service: its log, its database.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::Error;

/// All parts of the error, for the records of a service: with traceback, stacks and hint, which are for
/// its developers. Only [`message`](Error::message) may reach its callers. An error is written, and
/// never read back.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_struct("Error", 10)?;
        record.serialize_field("kind", &self.kind())?;
        record.serialize_field("temporary", &self.is_temporary())?;
        record.serialize_field("message", self.message())?;
        record.serialize_field("context", self.context())?;
        record.serialize_field("hint", &self.hint())?;
        record.serialize_field("exception", &self.exception())?;
        record.serialize_field("exit", &self.exit())?;
        record.serialize_field("refusal", &self.refusal().map(ToString::to_string))?;
        record.serialize_field("tries", self.tries())?;
        record.serialize_field("causes", &self.causes().map(ToString::to_string).collect::<Vec<_>>())?;
        record.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::{ErrorKind, Refusal, WorkerExit};
    use crate::ids::Rank;

    #[test]
    fn an_error_is_written_with_all_of_its_parts() {
        let error = Error::worker_exited(Rank(1), WorkerExit::Code(3)).with_context("entry", "train").temporary();
        let error = error.with_source(Error::refused(Refusal::Quota("G".into()), "no room"));
        let record = serde_json::to_value(&error).unwrap();
        assert_eq!(record["kind"], "worker_exited");
        assert_eq!(record["temporary"], true);
        assert_eq!(record["context"], json!([["entry", "train"]]));
        assert_eq!(record["exit"], json!({"code": 3}));
        assert_eq!(record["causes"], json!(["no room"]));
        assert_eq!(record["hint"], json!(null));
        let refused = Error::refused(Refusal::Quota("G".into()), "no room");
        assert_eq!(serde_json::to_value(refused).unwrap()["refusal"], "the quota G is used up");
        assert_eq!(ErrorKind::WorkerExited.to_string(), "worker exited");
        assert_eq!(serde_json::from_str::<ErrorKind>("\"worker_exited\"").unwrap(), ErrorKind::WorkerExited);
    }
}
