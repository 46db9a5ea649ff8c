// Package match is the directory's matcher: it ranks capabilities for a semantic request and says how well, and why.
//
// Text becomes terms the same way everywhere ([Terms]): NFKC without hidden characters, camelCase and snake_case cut, words of
// letters and numbers, lower case, no stop words, Porter stems; runs of Han, Hiragana, Katakana and Hangul give their character
// pairs too. Hard filters come first. The rank is BM25F over weighted fields plus .4 of BM25 over neighbouring pairs of terms, fused with
// the cosine of embeddings: those of the built-in token table, or of an [Embedder] of the operator's that the caller asks (the package
// itself asks nobody). A request by text costs the postings of its terms and one scan of all vectors, in a directory of more than 100,000
// capabilities that of the 2,000 best only. That score is only an order within one directory; what two gateways may compare is the confidence ([AnswerBar], [ScoreText]),
// which depends on the request and one capability's text alone.
//
// Concurrency: an [Index] has one writer at a time (its owner serialises Apply and Load); any number of readers call
// [Index.Resolve] beside it and see the index as it was before or after a change, never between. Nobody waits for anybody.
// The same live capabilities give the same answer, whatever order they came in. Scores and confidences are per ten thousand
// where they are integers. Nothing here fails: text without terms matches nothing.
//
// The package is pure. Source: MATCHING, sections 1 and 2; seed 002, section 5.3.
package match
