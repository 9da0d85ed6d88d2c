//! `--once`: the service sends requests to itself, prints the answers, and asserts what the example
//! claims.

use serde_json::{Value, json};

use super::client::{Client, Failure, Told};

pub(crate) async fn tell(client: Client) -> Result<(), Failure> {
    let refused = client.post("/trainings", json!({ "epochs": 0 }).to_string()).await?;
    println!("a request that cannot work  {} {}", refused.status, refused.body);
    assert_eq!(refused.status, 422);

    let taken = client.post("/trainings", json!({ "epochs": 20, "seed": 1 }).to_string()).await?;
    let place = taken.headers["location"].to_str()?.to_owned();
    println!("one that can                {} {place}", taken.status);
    assert_eq!(taken.status, 202);

    let events = client.follow(&format!("{place}/events"), 0).await?.until(&ENDS).await?;
    events.iter().for_each(print);
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"queued"));
    assert_eq!(names.iter().filter(|name| **name == "progress").count(), 20);
    assert!(names.contains(&"started") && names.contains(&"output"));

    let state = client.get(&place).await?;
    println!("its state                   {} {}", state.status, state.body);
    assert_eq!(state.body["state"], "finished");
    let accuracy = state.body["report"]["accuracy"].as_f64().unwrap_or_default();
    assert!(accuracy > 0.9, "the model has learned: {accuracy}");

    let ended = client.delete(&place).await?;
    println!("too late to cancel          {} {}", ended.status, ended.body["error"]["message"]);
    assert_eq!(ended.status, 409);
    let health = client.get("/health").await?;
    println!("health                      {} {}", health.status, health.body);
    assert_eq!(health.status.as_u16(), 200);
    assert_eq!(&health.body["taking"], &Value::Bool(true));
    Ok(())
}

fn print(event: &Told) {
    let what = match event.name.as_str() {
        "output" => event.data["line"].to_string(),
        "progress" => {
            format!("epoch {}: loss {:.4}", event.data["epoch"], event.data["loss"].as_f64().unwrap_or_default())
        }
        _ => event.data.to_string(),
    };
    println!("  {:>3} {:<9} {what}", event.id, event.name);
}

/// The names of a training's last event.
pub(crate) const ENDS: [&str; 3] = ["finished", "failed", "cancelled"];
