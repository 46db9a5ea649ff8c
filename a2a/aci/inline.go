package aci

import (
	"encoding/base64"
	"strings"

	"agentgw/internal/frame"
)

const (
	dataScheme = "data:"
	dataBase64 = ";base64,"
)

// MakeInline makes a `data:` ContextURI (RFC 2397) of content, at most [MaxInline] bytes, in base64.
func MakeInline(media string, content []byte) (string, error) {
	if len(content) > MaxInline {
		return "", frame.Errorf(frame.LimitExceeded, "inline content of %d bytes, the limit is %d", len(content), MaxInline)
	}
	if media == "" || strings.ContainsAny(media, ", \t\r\n\"") {
		return "", malformed("%q is not a media type", media)
	}
	return dataScheme + media + dataBase64 + base64.StdEncoding.EncodeToString(content), nil
}

// OpenInline is the media type and the content of a `data:` ContextURI. Only the form that [MakeInline] writes is accepted.
func OpenInline(uri string) (media string, content []byte, err error) {
	rest, ok := strings.CutPrefix(uri, dataScheme)
	if !ok {
		return "", nil, malformed("ContextURI is not a data: URI")
	}
	media, text, ok := strings.Cut(rest, dataBase64)
	if !ok || media == "" || strings.Contains(media, ",") {
		return "", nil, malformed("data: URI is not of the form data:<media type>;base64,<content>")
	}
	if len(text) > base64.StdEncoding.EncodedLen(MaxInline) {
		return "", nil, frame.Errorf(frame.LimitExceeded, "inline content above its limit of %d bytes", MaxInline)
	}
	content, err = base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return "", nil, malformed("data: URI: %w", err)
	}
	if len(content) > MaxInline {
		return "", nil, frame.Errorf(frame.LimitExceeded, "inline content of %d bytes, the limit is %d", len(content), MaxInline)
	}
	return media, content, nil
}

// OwnsInline says whether a ContextURI carries its own content: such a URI belongs to whoever wrote it.
func OwnsInline(uri string) bool { return strings.HasPrefix(uri, dataScheme) }
