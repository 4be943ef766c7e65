"""Facts about a store for its pages: read bit by bit, without a browser and without a server."""
