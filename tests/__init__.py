"""Tests of coterie, one folder per part."""
