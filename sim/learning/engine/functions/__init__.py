"""Functions of protocols (`apply`), and vectors of types other than float32."""
