//! The toolhive.stacklok.dev kinds: types, schemas, CRDs. No client.
