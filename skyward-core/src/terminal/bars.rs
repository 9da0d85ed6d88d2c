//! Rows of progress that move below the lines of a terminal.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::story::Row;
use super::timing::SPINNER_PAUSE;

/// The rows that are shown now.
pub(super) struct Bars {
    all: MultiProgress,
    rows: Vec<(Row, ProgressBar)>,
}

impl Bars {
    pub(super) fn stderr() -> Self {
        Self::new(ProgressDrawTarget::stderr())
    }

    pub(super) fn new(target: ProgressDrawTarget) -> Self {
        Self { all: MultiProgress::with_draw_target(target), rows: Vec::new() }
    }

    /// Replaces the rows that are shown.
    pub(super) fn set(&mut self, rows: &[Row]) {
        while self.rows.len() > rows.len() {
            if let Some((_, bar)) = self.rows.pop() {
                bar.finish_and_clear();
                self.all.remove(&bar);
            }
        }
        for (at, row) in rows.iter().enumerate() {
            match self.rows.get_mut(at) {
                Some((shown, _)) if shown == row => {}
                Some((shown, bar)) => {
                    if std::mem::discriminant(shown) != std::mem::discriminant(row) {
                        bar.set_style(style(row));
                    }
                    draw(bar, row);
                    *shown = row.clone();
                }
                None => {
                    let bar = self.all.add(ProgressBar::new(0).with_style(style(row)));
                    draw(&bar, row);
                    bar.enable_steady_tick(SPINNER_PAUSE);
                    self.rows.push((row.clone(), bar));
                }
            }
        }
    }

    /// Hides all rows while `work` runs.
    pub(super) fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.rows.is_empty() { work() } else { self.all.suspend(work) }
    }
}

fn draw(bar: &ProgressBar, row: &Row) {
    match row {
        Row::Text(text) => bar.set_message(text.clone()),
        Row::Bar { text, done, total } => {
            bar.set_length((*total).into());
            bar.set_position((*done).into());
            bar.set_message(text.clone());
        }
    }
}

fn style(row: &Row) -> ProgressStyle {
    let template = match row {
        Row::Text(_) => "{spinner} {wide_msg}",
        Row::Bar { .. } => "{spinner} {msg} [{bar:30}] {pos}/{len}",
    };
    // A test draws with both templates, so the fallback is never used.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()).progress_chars("=> ")
}
