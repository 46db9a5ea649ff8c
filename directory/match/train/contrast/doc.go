// Package contrast trains a static token table (directory/match/table): from public word vectors, on pairs of texts that mean the same
// tool. A table is made so that the embeddings of such two texts are nearer to each other than to those of other pairs.
//
// A row is (e + e·A + d)·exp(ln w + u). e is the start of its stem, of length 1: the mean of its surface forms among the 40,000 commonest
// words, half of it by how common a form is in the language and half by how often the texts have it. w is how much a stem counts at the
// start, 1e-3/(1e-3 + p) with p the frequency of its commonest form by Zipf's law. Learned are A, one map of all rows, which those that no
// text has follow too; d and u of each row that a pair has.
//
// The loss is InfoNCE over batches of 512 pairs at temperature .06, from the first texts to the second ones and, half as much, the other
// way; texts of one tool, or of one request, are no counter-examples of each other. Adam goes five times over all pairs. What is learned
// is quantised to eight bits a component.
//
// The contract: [Read] reads of the public sets what may be learned from and nothing else; [Train] is pure. The same material and seed give
// the same file, octet for octet, on one processor architecture with one version of Go: elsewhere a compiler may join multiplications
// and additions, which rounds otherwise, and the file differs in the last bits of some rows. One training takes less than a minute on one
// core and 370 MB. Source: MATCHING, sections 1 and 4; the reasons for each choice are in train/README.md.
package contrast
