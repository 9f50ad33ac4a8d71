//! forebay-front
