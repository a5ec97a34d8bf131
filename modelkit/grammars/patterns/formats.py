"""Formats of texts as regular expressions of whole texts, between the slashes of a grammar: those that the
library knows, as their RFCs have them.
"""

_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"({_OCTET}\.){{3}}{_OCTET}"
_HEX = r"[0-9A-Fa-f]{1,4}"
_LAST = rf"({_HEX}:{_HEX}|{_IPV4})"
_IPV6 = "|".join(
    [
        rf"({_HEX}:){{6}}{_LAST}",
        rf"::({_HEX}:){{5}}{_LAST}",
        *(rf"({_HEX}(:{_HEX}){{0,{n}}})?::({_HEX}:){{{4 - n}}}{_LAST}" for n in range(5)),
        rf"({_HEX}(:{_HEX}){{0,5}})?::{_HEX}",
        rf"({_HEX}(:{_HEX}){{0,6}})?::",
    ]
)
_FOURS = r"0[48]|[2468][048]|[13579][26]"
_LEAP = rf"([0-9]{{2}}({_FOURS})|(00|{_FOURS})00)"
_DATE = (
    r"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    rf"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_PART = r"(\.[0-9]{1,9})?"
_TIME = (
    rf"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{_PART}([Zz]|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])"
    rf"|23:59:60{_PART}([Zz]|[+\-]00:00))"  # a leap second of UTC's; what it is elsewhere is not counted out
)
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL})*"
_ATOM = r"[A-Za-z0-9!#$%&'*+\-\/=?\^_`{|}~]+"
_CLOCK = r"T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_PLAIN = r"[A-Za-z0-9\-._~!$&'()*+,;=]"  # of a URI: unreserved, and delimiters of its parts
_CODED = r"%[0-9A-Fa-f]{2}"
_PATH = rf"({_PLAIN}|[:@]|{_CODED})"
_QUERY = rf"({_PLAIN}|[:@\/?]|{_CODED})*"
_AUTHORITY = (
    rf"(({_PLAIN}|:|{_CODED})*@)?(\[({_IPV6}|[Vv][0-9A-Fa-f]+\.({_PLAIN}|:)+)\]|({_PLAIN}|{_CODED})*)"
    r"(:[0-9]*)?"
)
_BASE64 = r"([A-Za-z0-9+\/]{4})*([A-Za-z0-9+\/]{2}==|[A-Za-z0-9+\/]{3}=)?"
_UUID = r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-{version}[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"

FORMATS = {
    "date": _DATE,  # RFC 3339, full-date
    "time": _TIME,  # full-time
    "date-time": rf"{_DATE}[Tt]{_TIME}",
    "duration": (  # appendix A
        rf"P(([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)({_CLOCK})?|{_CLOCK}|[0-9]+W)"
    ),
    "email": rf"{_ATOM}(\.{_ATOM})*@({_HOST}|\[{_IPV4}\])",  # RFC 5321, without quotes
    "hostname": _HOST,  # RFC 1123
    "ipv4": _IPV4,  # RFC 2673
    "ipv6": _IPV6,  # RFC 4291
    "uuid": r"[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",  # RFC 9562
    "uri": (  # RFC 3986
        rf"[A-Za-z][A-Za-z0-9+\-.]*:(\/\/{_AUTHORITY}(\/{_PATH}*)*|\/({_PATH}+(\/{_PATH}*)*)?"
        rf"|{_PATH}+(\/{_PATH}*)*|)(\?{_QUERY})?(#{_QUERY})?"
    ),
    **dict.fromkeys(("base64", "byte"), _BASE64),  # of pydantic and of OpenAPI: RFC 4648
    "ipvanyaddress": f"{_IPV4}|{_IPV6}",  # these are pydantic's alone
    **{f"uuid{version}": _UUID.replace("{version}", str(version)) for version in range(1, 9)},
}
"""Regular expressions of whole texts."""
