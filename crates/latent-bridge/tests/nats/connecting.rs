//! Who is connected to and how, and what a failed attempt says and leaves (B-045 to B-049).
