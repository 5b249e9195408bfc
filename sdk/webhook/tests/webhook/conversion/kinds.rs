//! One group for each test that needs a CRD of its own.

people!(applied, "applied.example");
people!(alone, "alone.example");
people!(random, "random.example");
people!(reference, "reference.example");
people!(patched, "patched.example");
people!(listed, "listed.example");
people!(spoken, "spoken.example");
people!(flagged, "flagged.example");
people!(strict, "strict.example");
people!(panicking, "panicking.example");
people!(cleaned, "cleaned.example");
people!(down, "down.example");
people!(reviewed, "reviewed.example");
people!(kept, "kept.example");
people!(forged, "forged.example");
people!(defaulted, "defaulted.example");
people!(full, "full.example");
people!(fuller, "fuller.example");
people!(labelled, "labelled.example");
people!(logged, "logged.example");
