//! Whose an outbox is: a file that the first owner writes and every later one must find to be his own.

use std::path::Path;

use super::keys::hex;
use crate::BusError;
use crate::embedded::Storage;
use crate::engine::embedded::directory::{checked_text, read_control, with_check, write_control};
use crate::error::base_name;

/// Says whose outbox this is.
const OWNER_FILE: &str = "owner";
/// First line of that file.
const OWNER_FORMAT: &str = "latent-cold-outbox 1";

/// Two buses that use one outbox one after the other would each publish the other's events: the first one owns it for good.
pub(crate) fn take(storage: &dyn Storage, directory: &Path, owner: &str) -> Result<String, BusError> {
    let path = directory.join(OWNER_FILE);
    let Some(content) = read_control(storage, &path)? else {
        let id = fresh_id()?;
        write_control(storage, &path, with_check(&format!("{OWNER_FORMAT}\nid {id}\nowner {owner}\n")).as_bytes())?;
        return Ok(id);
    };
    let refused = |problem: String| BusError::Config { problem };
    let lines: Vec<_> = checked_text(OWNER_FILE, &content)?.lines().collect();
    let (id, found) = match lines.as_slice() {
        [OWNER_FORMAT, id, found] => (id.strip_prefix("id "), found.strip_prefix("owner ")),
        _ => (None, None),
    };
    let (Some(id), Some(found)) = (id, found) else {
        return Err(refused(
            "owner of the archive's outbox is of no known format; nothing was touched, use the program that wrote it".to_owned(),
        ));
    };
    if found != owner {
        let name = base_name(directory);
        return Err(refused(format!(
            "the archive's outbox {name:?} belongs to {found:?} and this is {owner:?}; nothing was touched, use another directory"
        )));
    }
    Ok(id.to_owned())
}

fn fresh_id() -> Result<String, BusError> {
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(|error| BusError::Backend(format!("no random bytes from the system: {error}")))?;
    Ok(hex(&id))
}
