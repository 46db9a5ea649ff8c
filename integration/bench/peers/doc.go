// Command peers measures the matcher beside other people's search, in a module of its own so that none of it enters the product's.
//
//	peers -data DIR [-size N]
//
// bleve v2 (scorch, BM25, its English analyser) gets the same capabilities and the same requests, as a match in each field with the fields
// weighted as ours are. Over the public sets in DIR (folders with corpus.jsonl and queries.jsonl, as `make eval` takes them) it prints the
// quality and the median time of both; over N generated capabilities the median times, and it fails below the bar. Both sides are in this
// process, on one core while they are measured, and take turns in small blocks. Exit status: 0, 1 below the bar, 2 where data is missing.
package main
