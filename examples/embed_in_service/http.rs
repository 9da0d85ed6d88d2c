//! The routes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State as Shared};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::routing::{get, post};
use futures_util::StreamExt;
use serde::Serialize;
use serde_json::json;
use skyward::compute::PoolPhase;

use super::problem::Problem;
use super::training::Request;
use super::trainings::{Training, Trainings};

pub(crate) fn router(trainings: Trainings) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/trainings", post(begin))
        .route("/trainings/{id}", get(state).delete(cancel))
        .route("/trainings/{id}/events", get(events))
        .fallback(async || Problem::not_found("such path").hint(PATHS))
        .method_not_allowed_fallback(async || Problem::no_such_method().hint(PATHS))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(trainings)
}

/// 202: the pool has the training; its address is in `Location`.
async fn begin(
    Shared(trainings): Shared<Trainings>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response<Body>, Problem> {
    let body = body.map_err(|rejection| Problem::unread(rejection.status(), rejection.body_text(), LARGEST_BODY))?;
    let training = trainings.begin(Request::read(&body)?).await?;
    let place = format!("/trainings/{}", training.id);
    let mut response = json(StatusCode::ACCEPTED, &json!({ "id": training.id, "events": format!("{place}/events") }));
    if let Ok(place) = place.try_into() {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

async fn state(Shared(trainings): Shared<Trainings>, Path(id): Path<String>) -> Result<Response<Body>, Problem> {
    Ok(show(StatusCode::OK, &*trainings.get(&id)?))
}

/// 202: the training ends soon, with the event `cancelled`.
async fn cancel(Shared(trainings): Shared<Trainings>, Path(id): Path<String>) -> Result<Response<Body>, Problem> {
    let training = trainings.get(&id)?;
    let state = training.state();
    if state.is_end() {
        return Err(Problem::ended(&id, state.name()));
    }
    training.cancel.notify_one();
    Ok(show(StatusCode::ACCEPTED, &training))
}

/// Server-sent events: from the oldest one that is kept, or from the one after the `Last-Event-ID`
/// of a returning follower. The service produces events only as fast as the follower reads them.
async fn events(
    Shared(trainings): Shared<Trainings>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let training = trainings.get(&id)?;
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let told = Arc::clone(&training.journal).follow(seen.unwrap_or(0)).map(|(number, event)| {
        let data = serde_json::to_string(&*event).unwrap_or_default();
        Ok::<_, Infallible>(SseEvent::default().event(event.name()).id(number.to_string()).data(data))
    });
    Ok(Sse::new(told).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// 200 while the service takes trainings; otherwise 503, so that a load balancer chooses another
/// instance.
async fn health(Shared(trainings): Shared<Trainings>) -> Response<Body> {
    let pool = trainings.pool().status();
    let taking = pool.phase == PoolPhase::Ready && !trainings.is_stopping();
    let workers: Vec<_> = pool
        .workers
        .iter()
        .map(|worker| json!({ "rank": worker.rank, "node": worker.node, "ready": worker.ready, "pid": worker.pid, "busy": worker.task.is_some() }))
        .collect();
    let status = if taking { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let pool = json!({
        "id": pool.pool, "phase": format!("{:?}", pool.phase), "failure": pool.failure.map(|error| error.summary()),
        "queued": pool.queued, "running": pool.running, "workers": workers,
    });
    json(status, &json!({ "taking": taking, "room": trainings.room(), "pool": pool }))
}

fn show(status: StatusCode, training: &Training) -> Response<Body> {
    #[derive(Serialize)]
    struct Shown<'a> {
        id: &'a str,
        request: &'a Request,
        #[serde(flatten)]
        state: super::trainings::State,
    }
    json(status, &Shown { id: &training.id, request: &training.request, state: training.state() })
}

/// A JSON answer. Every value of this service has a JSON form.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

const PATHS: &str =
    "POST /trainings, GET /trainings/{id}, GET /trainings/{id}/events, DELETE /trainings/{id}, GET /health";
const LARGEST_BODY: usize = 16 << 10;
/// How often a comment is sent, by which the service notices followers that are gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
