"""Helpers of stages of several folders."""
