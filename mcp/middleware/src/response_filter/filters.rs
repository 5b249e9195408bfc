//! The filters of lists that middleware registered for one request.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_http::Share;
use mcp_wire::{List, ListKind};

use super::{Judge, Refusal, Verdict};
use crate::bodies::beside;

/// The filters of lists that middleware registered for one request, in the order of the middleware: the outermost first.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    list: Vec<Filter>,
    /// The kinds of lists that they filter.
    kinds: Vec<ListKind>,
    /// Whether the answer depends on who asks.
    pub(crate) is_private: bool,
}

struct Filter {
    /// The type of its middleware.
    middleware: &'static str,
    kinds: &'static [ListKind],
    /// The work for one entry, as the bytes of a text that take as long to read.
    cost: usize,
    edit: Box<Edit>,
}

type Edit = dyn Fn(List) -> BoxFuture<'static, Result<List, &'static str>> + Send + Sync;

impl Filters {
    pub(crate) fn add<F>(
        &mut self,
        middleware: &'static str,
        kinds: &'static [ListKind],
        cost: usize,
        edit: impl Fn(List) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<List, &'static str>> + Send + 'static,
    {
        let new: Vec<_> = kinds.iter().filter(|kind| !self.kinds.contains(kind)).copied().collect();
        self.kinds.extend(new);
        self.list.push(Filter { middleware, kinds, cost, edit: Box::new(move |list| edit(list).boxed()) });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The middleware in whose name an answer is withheld that no filter can be shown.
    pub(crate) fn innermost(&self) -> &'static str {
        self.list.last().map_or("", |filter| filter.middleware)
    }

    fn read(&self, text: Bytes) -> Result<Option<List>, &'static str> {
        let mut list = List::read(text, &self.kinds)?;
        if let Some(list) = list.as_mut().filter(|_| self.is_private) {
            list.keep_private()?;
        }
        Ok(list)
    }
}

/// The innermost filter is the first, so that each sees what is left by those inside of it. The list is read once and written once.
impl Judge for Filters {
    async fn judge(self: &Arc<Self>, text: Bytes, share: Share) -> (Verdict, Share) {
        let (length, this) = (text.len(), Arc::clone(self));
        let withheld = |middleware, reason| Verdict::Withhold(Refusal { middleware, reason });
        let (read, mut share) = beside(length, move || (this.read(text), share)).await;
        let mut list = match read {
            Ok(Some(list)) => list,
            Ok(None) => return (Verdict::Pass, share),
            Err(reason) => return (withheld(self.innermost(), reason), share),
        };
        for at in (0..self.list.len()).rev() {
            let Filter { middleware, kinds, cost, .. } = self.list[at];
            if !kinds.contains(&list.kind()) {
                continue;
            }
            let (this, held) = (Arc::clone(self), share);
            let work = length.max(list.entries().len().saturating_mul(cost));
            let (edited, held) = beside(work, move || ((this.list[at].edit)(list), held)).await;
            (list, share) = match edited.await {
                Ok(list) => (list, held),
                Err(reason) => return (withheld(middleware, reason), held),
            };
        }
        beside(length, move || (list.into_text().map_or(Verdict::Pass, Verdict::Replace), share)).await
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("middleware", &self.middleware)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}
