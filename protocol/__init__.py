"""Wire documents, canonical bytes, named arrays, the Merkle tree and signatures; all pure."""
