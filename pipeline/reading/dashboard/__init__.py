"""Pages of a store, live while drivers run: on the scheduler of a run, or served by `quarkline dashboard`.

`facts` reads the store and knows no browser, `panels` show facts, `pages` lays panels out, `chunk_page` shows
a record, `door` lets in who knows the secret, and `watcher` has a run, or a process of its own, serve them.
"""
