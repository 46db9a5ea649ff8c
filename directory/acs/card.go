package acs

import (
	"fmt"
	"maps"
	"slices"
)

// ExtensionA2A is the extension member of an endpoint that holds what an Agent Card says of an interface and the ACS has no name for:
// its `protocolVersion` and `tenant`.
const ExtensionA2A = "x-a2a"

// IsCard says whether a document is an Agent Card of A2A 1.0 or 0.3 rather than an ACS. What is neither is no card: reading it as an ACS
// says what is missing.
func IsCard(b []byte) bool {
	doc, err := decodeStrict(b)
	if err != nil {
		return false
	}
	_, v1 := doc["supportedInterfaces"]
	_, v03 := doc["url"]
	return v1 || v03 && doc["endPoints"] == nil
}

// FromCard is the draft that an Agent Card of A2A 1.0 or 0.3 comes to (ECOSYSTEM, R5). Members of a wrong type go over as they are, so that
// [ACS.Validate] tells them; interfaces of a binding that the ACS has no transport for, signatures and extensions do not, and a directory
// keeps the card's own bytes beside the ACS.
func FromCard(b []byte) (*ACS, error) {
	card, err := decodeStrict(b)
	if err != nil {
		return nil, fmt.Errorf("read Agent Card: %w", err)
	}
	doc := map[string]any{"protocolVersion": ProtocolVersion, "provider": map[string]any{}}
	take(doc, card, "name", "description", "version", "iconUrl", "documentationUrl", "provider")
	doc["defaultInputModes"], doc["defaultOutputModes"] = mediaTypes(card["defaultInputModes"]), mediaTypes(card["defaultOutputModes"])
	doc["securitySchemes"] = cardSchemes(card["securitySchemes"])
	doc["endPoints"] = cardEndPoints(card)
	abilities := object(card["capabilities"])
	doc["capabilities"] = map[string]any{
		"streaming": or(abilities["streaming"], false), "notification": or(abilities["pushNotifications"], false), "messageQueue": []any{},
	}
	doc["skills"] = each(card["skills"], func(s map[string]any) map[string]any {
		out := map[string]any{}
		take(out, s, "id", "name", "description", "tags", "examples")
		for _, name := range []string{"inputModes", "outputModes"} {
			if modes, ok := s[name].([]any); ok && len(modes) > 0 {
				out[name] = mediaTypes(s[name])
			}
		}
		return out
	})
	return viewOf(doc), nil
}

// take copies the members that are there.
func take(to, from map[string]any, names ...string) {
	for _, name := range names {
		if v, ok := from[name]; ok && v != nil {
			to[name] = v
		}
	}
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func word(v any) string {
	s, _ := v.(string)
	return s
}

func or(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

// each maps the objects of a list. A list that is none, and an element that is none, stay what they are.
func each(v any, f func(map[string]any) map[string]any) any {
	list, ok := v.([]any)
	if !ok {
		return or(v, []any{})
	}
	out := make([]any, len(list))
	for i, e := range list {
		if m, ok := e.(map[string]any); ok {
			out[i] = f(m)
		} else {
			out[i] = e
		}
	}
	return out
}

// mediaTypes writes the word that cards before 1.0 had for plain text as the media type that it stands for.
func mediaTypes(v any) any {
	list, ok := v.([]any)
	if !ok {
		return or(v, []any{})
	}
	out := make([]any, len(list))
	for i, m := range list {
		if out[i] = m; m == "text" {
			out[i] = "text/plain"
		}
	}
	return out
}

// transportOf are the bindings of a card that an ACS has a transport for.
var transportOf = map[string]string{"JSONRPC": "JSONRPC", "HTTP+JSON": "HTTP_JSON"}

// cardEndPoints are the interfaces of a card in its order of preference. What a card asks of its callers holds for each.
func cardEndPoints(card map[string]any) any {
	type way struct{ url, binding, version, tenant any } // of any type: who reads the ACS says what is wrong
	var ways []way
	list, v1 := card["supportedInterfaces"].([]any)
	if v1 {
		for _, e := range list {
			i := object(e)
			ways = append(ways, way{i["url"], i["protocolBinding"], i["protocolVersion"], i["tenant"]})
		}
	} else {
		version := or(card["protocolVersion"], "0.3.0")
		ways = append(ways, way{url: card["url"], binding: or(card["preferredTransport"], "JSONRPC"), version: version})
		list, _ = card["additionalInterfaces"].([]any)
		for _, e := range list {
			i := object(e)
			if word(i["url"]) != word(card["url"]) || word(i["transport"]) != word(ways[0].binding) { // the main one may be named again
				ways = append(ways, way{url: i["url"], binding: i["transport"], version: version})
			}
		}
	}
	security := cardSecurity(card, v1)
	out := []any{}
	for _, w := range ways {
		transport, ok := transportOf[word(w.binding)]
		if !ok {
			continue
		}
		extension := map[string]any{}
		take(extension, map[string]any{"protocolVersion": w.version, "tenant": w.tenant}, "protocolVersion", "tenant")
		e := map[string]any{"transport": transport, ExtensionA2A: extension}
		take(e, map[string]any{"url": w.url, "security": security}, "url", "security")
		out = append(out, e)
	}
	return out
}

// cardSecurity is what a card asks of its callers: any of these, all of each. nil: nothing.
func cardSecurity(card map[string]any, v1 bool) any {
	if !v1 {
		return card["security"] // spelled as the ACS spells it
	}
	list, ok := card["securityRequirements"].([]any)
	if !ok || len(list) == 0 {
		return nil
	}
	return each(list, func(alternative map[string]any) map[string]any {
		out := map[string]any{}
		for name, scopes := range object(alternative["schemes"]) {
			out[name] = or(object(scopes)["list"], []any{})
		}
		return out
	})
}

// cardSchemes are a card's ways to authenticate. Those of 1.0 are objects of one member, which says the kind; those of 0.3 have the type
// that the ACS has too.
func cardSchemes(v any) any {
	out := map[string]any{}
	for name, s := range object(v) {
		out[name] = s
		members := object(s)
		for _, kind := range slices.Sorted(maps.Keys(members)) {
			typ, ok := schemeTypes[kind]
			if !ok {
				continue
			}
			made := map[string]any{"type": typ}
			said := object(members[kind])
			for _, member := range slices.Sorted(maps.Keys(said)) {
				value := said[member]
				if kind == "apiKeySecurityScheme" && member == "location" {
					member = "in"
				}
				made[member] = value
			}
			out[name] = made
		}
	}
	return out
}

var schemeTypes = map[string]string{
	"mtlsSecurityScheme": "mutualTLS", "openIdConnectSecurityScheme": "openIdConnect", "apiKeySecurityScheme": "apiKey",
	"httpAuthSecurityScheme": "http", "oauth2SecurityScheme": "oauth2",
}
