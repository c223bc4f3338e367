"""Container images: found in a directory or fetched, unpacked once per digest, and kept while there is room."""
