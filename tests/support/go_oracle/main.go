// Renders templates as Ollama does, with Go's own text/template: the answers that tests/data/go holds.
//
//	go run main.go < cases.json > answers.json
//
// cases.json: {"templates": [text, ...], "cases": [{"messages": [...], "tools": [...], "think": true}, ...]};
// answers.json: for each template, for each case, {"text": ...} or {"error": ...}.
package main

import (
	"encoding/json"
	"os"
	"strings"
	"text/template"
	"text/template/parse"
)

type names []string

func (n names) MarshalJSON() ([]byte, error) {
	if len(n) == 1 {
		return json.Marshal(n[0])
	}
	return json.Marshal([]string(n))
}

func (n names) String() string {
	if len(n) == 1 {
		return n[0]
	}
	return "[" + strings.Join(n, " ") + "]"
}

func (n *names) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*n = names{one}
		return nil
	}
	var many []string
	err := json.Unmarshal(raw, &many)
	*n = many
	return err
}

type ToolProperty struct {
	AnyOf       []ToolProperty           `json:"anyOf,omitempty"`
	Type        names                    `json:"type,omitempty"`
	Items       any                      `json:"items,omitempty"`
	Description string                   `json:"description,omitempty"`
	Enum        []any                    `json:"enum,omitempty"`
	Properties  *map[string]ToolProperty `json:"properties,omitempty"`
	Required    []string                 `json:"required,omitempty"`
}

type properties map[string]ToolProperty

func (p properties) String() string { return marshalled(p, p == nil) }

type parameters struct {
	Type       string     `json:"type"`
	Defs       any        `json:"$defs,omitempty"`
	Items      any        `json:"items,omitempty"`
	Required   []string   `json:"required,omitempty"`
	Properties properties `json:"properties"`
}

type function struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Parameters  parameters `json:"parameters"`
}

type tool struct {
	Type     string   `json:"type"`
	Items    any      `json:"items,omitempty"`
	Function function `json:"function"`
}

func (t tool) String() string { return marshalled(t, false) }

type tools []tool

func (t tools) String() string { return marshalled(t, false) }

type arguments map[string]any

func (a arguments) String() string { return marshalled(a, a == nil) }

type callFunction struct {
	Index     int
	Name      string
	Arguments arguments
}

type call struct {
	ID       string
	Function callFunction
}

type message struct {
	Role, Content, Thinking string
	Images                  [][]byte
	ToolCalls               []call
	ToolName, ToolCallID    string
}

type given struct {
	Messages []*message
	Tools    tools
	Think    *bool
}

func marshalled(v any, empty bool) string {
	if empty {
		return "{}"
	}
	raw, _ := json.Marshal(v)
	return string(raw)
}

var functions = template.FuncMap{
	"json":             func(v any) string { return marshalled(v, false) },
	"currentDate":      func(...string) string { return "2026-03-01" },
	"yesterdayDate":    func(...string) string { return "2026-02-28" },
	"toTypeScriptType": func(any) string { return "any" },
}

// What of the tree says `.Response`, or comes behind the first that does, and which names it reads.
func fields(node parse.Node, into map[string]bool) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, one := range n.Nodes {
				fields(one, into)
			}
		}
	case *parse.ActionNode:
		fields(n.Pipe, into)
	case *parse.IfNode:
		branch(&n.BranchNode, into)
	case *parse.WithNode:
		branch(&n.BranchNode, into)
	case *parse.RangeNode:
		branch(&n.BranchNode, into)
	case *parse.PipeNode:
		for _, command := range n.Cmds {
			for _, one := range command.Args {
				fields(one, into)
			}
		}
	case *parse.FieldNode:
		for _, name := range n.Ident {
			into[strings.ToLower(name)] = true
		}
	case *parse.VariableNode:
		for _, name := range n.Ident {
			into[strings.ToLower(name)] = true
		}
	}
}

func branch(n *parse.BranchNode, into map[string]bool) {
	fields(n.Pipe, into)
	fields(n.List, into)
	fields(n.ElseList, into)
}

func cut(list *parse.ListNode) bool {
	for at, node := range list.Nodes {
		found := false
		switch n := node.(type) {
		case *parse.ActionNode:
			known := map[string]bool{}
			fields(n, known)
			found = known["response"]
		case *parse.IfNode:
			found = cutBranch(&n.BranchNode)
		case *parse.WithNode:
			found = cutBranch(&n.BranchNode)
		case *parse.RangeNode:
			found = cutBranch(&n.BranchNode)
		}
		if found {
			list.Nodes = list.Nodes[:at+1]
			return true
		}
	}
	return false
}

func cutBranch(n *parse.BranchNode) bool {
	if cut(n.List) {
		n.ElseList = nil
		return true
	}
	return n.ElseList != nil && cut(n.ElseList)
}

func thinking(data map[string]any, think *bool) map[string]any {
	data["Think"], data["ThinkLevel"], data["IsThinkSet"] = think != nil && *think, "", think != nil
	return data
}

func render(source string, asked given) (string, error) {
	made, err := template.New("").Option("missingkey=zero").Funcs(functions).Parse(source)
	if err != nil {
		return "", err
	}
	reads := map[string]bool{}
	fields(made.Root, reads)
	var system []string
	var merged []*message
	for _, one := range asked.Messages {
		if one.Role == "system" {
			system = append(system, one.Content)
		}
		if last := len(merged) - 1; last >= 0 && merged[last].Role == one.Role && one.Role != "tool" {
			merged[last].Content += "\n\n" + one.Content
			continue
		}
		copied := *one
		merged = append(merged, &copied)
	}
	var out strings.Builder
	if reads["messages"] {
		data := map[string]any{"System": strings.Join(system, "\n\n"), "Messages": merged, "Tools": asked.Tools, "Response": ""}
		err := made.Execute(&out, thinking(data, asked.Think))
		return out.String(), err
	}
	if !reads["response"] {
		tail, _ := template.New("").Parse("{{ .Response }}")
		made.Root.Nodes = append(made.Root.Nodes, tail.Root.Nodes...)
	}
	turn := map[string]any{"System": "", "Prompt": "", "Response": ""}
	say := func(with *template.Template) error {
		err := with.Execute(&out, thinking(turn, asked.Think))
		turn = map[string]any{"System": "", "Prompt": "", "Response": ""}
		return err
	}
	for _, one := range merged {
		var err error
		switch one.Role {
		case "system":
			if turn["Prompt"] != "" || turn["Response"] != "" {
				err = say(made)
			}
			turn["System"] = one.Content
		case "user":
			if turn["Response"] != "" {
				err = say(made)
			}
			turn["Prompt"] = one.Content
		case "assistant":
			turn["Response"] = one.Content
		}
		if err != nil {
			return "", err
		}
	}
	last := template.Must(made.Clone())
	cut(last.Root)
	err = say(last)
	return out.String(), err
}

func main() {
	var input struct {
		Templates []string
		Cases     []given
	}
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		panic(err)
	}
	answers := make([][]map[string]string, len(input.Templates))
	for at, source := range input.Templates {
		for _, asked := range input.Cases {
			text, err := render(source, asked)
			answer := map[string]string{"text": text}
			if err != nil {
				answer = map[string]string{"error": err.Error()}
			}
			answers[at] = append(answers[at], answer)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answers); err != nil {
		panic(err)
	}
}
