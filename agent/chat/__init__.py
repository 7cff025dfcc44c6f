"""Chats as ids: templates, control tokens, and how each family of models calls tools."""

from .families import FORMATS, Family, FamilyName, find_family
from .reading import CallFormat, Malformed, WrittenCall
from .tokenizer import ChatTokenizer, TemplateRefusal, neutralize
from .turns import Message, encode_prompt, encode_reply, render_prompt, render_reply

__all__ = [
    "FORMATS",
    "CallFormat",
    "ChatTokenizer",
    "Family",
    "FamilyName",
    "Malformed",
    "Message",
    "TemplateRefusal",
    "WrittenCall",
    "encode_prompt",
    "encode_reply",
    "find_family",
    "neutralize",
    "render_prompt",
    "render_reply",
]
