"""What tests of several folders share: operators written out, files of other codes, stores, a browser."""
