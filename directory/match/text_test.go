package match

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"agentgw/directory"
)

func TestStem(t *testing.T) {
	for w, want := range map[string]string{
		// step by step
		"caresses": "caress", "ponies": "poni", "caress": "caress", "cats": "cat", "feed": "feed", "agreed": "agre",
		"plastered": "plaster", "bled": "bled", "motoring": "motor", "sing": "sing", "conflated": "conflat", "troubled": "troubl",
		"sized": "size", "hopping": "hop", "falling": "fall", "hissing": "hiss", "filing": "file", "happy": "happi", "sky": "sky",
		"relational": "relat", "conditional": "condit", "vietnamization": "vietnam", "triplicate": "triplic", "electrical": "electr",
		"hopeful": "hope", "goodness": "good", "revival": "reviv", "adoption": "adopt", "controlling": "control", "rolling": "roll",
		"probate": "probat", "rate": "rate", "cease": "ceas", "yes": "ye", "syzygy": "syzygi",
		// the author's three departures
		"as": "as", "us": "us", "possibly": "possibl", "sensibly": "sensibl", "archaeology": "archaeolog", "geology": "geologi",
		// digits and other letters are consonants
		"10th": "10th", "3d": "3d", "naïvely": "naïv", "überholen": "überholen", "straßen": "straßen", "cafés": "café",
	} {
		if got := Stem(w); got != want {
			t.Errorf("Stem(%q) = %q, want %q", w, got, want)
		}
	}
}

func TestTerms(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"How do I get it to them?":  "",
		"parseHTTPResponse2XML":     "pars http response2 xml",
		"get_weather-forecast/v2":   "weather forecast v2",
		"The CATS' whiskers, twice": "cat whisker twice",
		"ﬁle ｔｙｐｅ":                  "file type", // NFKC
		"pass\u200bword \u202eabc":  "password abc",
		"天气预报":                      "天气预报 天气 气预 预报",
		"天气 weather":                "天气 weather",
		"東京のホテル":                    "東京のホテル 東京 京の のホ ホテ テル",
		"iPhone手机壳":                 "phone手机壳 手机 机壳",
		"naïve café":                "naïv café",
		"don't we'll":               "don",
		"word word":                 "word word",
		"x\u0000y\xffz":             "x y z",
	} {
		if got := strings.Join(Terms(text), " "); got != want {
			t.Errorf("Terms(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestQueryIsCapped(t *testing.T) {
	if n := len(queryTerms(strings.Repeat("word ", 100))); n != MaxQueryTerms {
		t.Errorf("%d terms", n)
	}
	long := strings.Repeat("é", MaxQueryChars) + "tail"
	if got := queryTerms(long); len(got) != 1 || utf8.RuneCountInString(got[0]) != MaxQueryChars {
		t.Errorf("%d terms, first of %d characters", len(got), utf8.RuneCountInString(got[0]))
	}
}

func TestDigestTerms(t *testing.T) {
	c := directory.Capability{Name: "Read maps", Description: "maps", Tags: []string{"geo"}, Examples: []string{"Where is the sea"}, AgentName: "Atlas",
		AgentDescription: "Reads"}
	var got []string
	for _, d := range DigestTerms(c) {
		got = append(got, fmt.Sprint(d.Text, " ", d.Count))
	}
	if !slices.Equal(got, []string{"atla 1", "geo 1", "map 4", "read 3.3", "sea 0.5"}) {
		t.Errorf("terms %q", got)
	}
}

func TestIdentifiers(t *testing.T) {
	got := identifiers(`call finance.invoice.extract, then "getWeather" (or get_weather). Please say hello; Hello HTTP`)
	if !slices.Equal(got, []string{"finance.invoice.extract", "get_weather", "getweather"}) {
		t.Errorf("identifiers %q", got)
	}
}

func TestBackground(t *testing.T) {
	if got := rank("the"); got != 0 {
		t.Errorf("rank of the = %d", got)
	}
	for _, absent := range []string{"", "a", "zzzzzz", "\xff", "0000000", "medicine"} { // medicine is a word, medicin its stem
		if got := rank(absent); got != unlistedRank {
			t.Errorf("rank(%q) = %d", absent, got)
		}
	}
	if got := Background("no such word"); math.Abs(got-12.899) > .001 {
		t.Errorf("background of an unlisted word = %f", got)
	}
	if Background("hous") >= Background("throat") || Background("throat") >= Background("lozeng") {
		t.Error("rarer words are not heavier")
	}
}

// TestRankFileIsWhole reads each line of the table through the search.
func TestRankFileIsWhole(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(ranks, "\n"), "\n")
	if len(lines) != 40_000 {
		t.Fatalf("%d lines", len(lines))
	}
	for i := 0; i < len(lines); i += 7 {
		term, _, _ := strings.Cut(lines[i], "\t")
		if rank(term) == unlistedRank {
			t.Errorf("line %d, %q, is not found", i, term)
		}
	}
}

func FuzzTerms(f *testing.F) {
	for _, s := range []string{"parseHTTPResponse2XML", "ﬁle ｔｙｐｅ", "天气预报 weather", "İstanbul ŉ", "a\u0301b\u200dc", "\xff\xfe", "relational ationally"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		terms := Terms(s)
		for _, term := range terms {
			if term == "" || !utf8.ValidString(term) || strings.ContainsAny(term, " \t\n_-") {
				t.Fatalf("Terms(%q) has %q", s, term)
			}
		}
		if again := Terms(s); !slices.Equal(terms, again) {
			t.Fatalf("Terms(%q) = %q, then %q", s, terms, again)
		}
		c := directory.Capability{CapID: "x", Name: s, Description: s}
		var x Index
		x.Apply(Change{AIC: "a", Caps: []directory.Capability{c}})
		if got := x.Resolve(Query{Text: s}); len(s) <= MaxQueryChars && len(terms) > 0 && len(got) != 1 {
			t.Fatalf("a capability does not find itself by %q", s)
		}
		if conf := ScoreText(Query{Text: s}, SkillText{Name: s}); conf > 10_000 {
			t.Fatalf("confidence %d", conf)
		}
	})
}
