"""Reading a store: results, reports, accounts, verification, garbage collection."""
