// Package embedding has a directory ranked by an embeddings endpoint: the [Client] speaks its API, the [Keeper] gives requests their
// vectors, and the entries of a directory theirs, beside everything else.
//
// The contract: nothing waits for the endpoint longer than the configured timeout, and nothing fails because of it. A request that gets no
// vectors is ranked by its words; an entry that has none yet, as one of usual likeness. After a failure requests leave the endpoint alone
// for a while. Vectors are kept in memory only and are made anew after a restart: what they tell of the entries would otherwise lie beside
// an encrypted database in the clear, and an endpoint answers some thousand entries a minute.
//
// Concurrency: Client and Keeper are safe for concurrent use; Run is called once. Neither logs a key or a text.
// Source: MATCHING, section 2, point 9; the OpenAI API reference, "Create embeddings".
package embedding
